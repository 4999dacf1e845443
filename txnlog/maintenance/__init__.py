"""Work off the commit path: ``maintain`` and its parts, erasing rows, fsck and repair, backup and restore."""
