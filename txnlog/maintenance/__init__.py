"""Work off the commit path: merging, retention and vacuum (together: ``maintain``), fsck, backup and restore."""
