"""The pages of a Parquet file against its footer, but for the lengths of levels (PROTOCOL.md, section 9, P-106)."""

import io
import struct
import zlib
from collections import Counter

from .entries import refuse

DATA, DICTIONARY, DATA_2 = 0, 2, 3  # types of a page
PAGE_HEADER = {DATA: 5, DICTIONARY: 7, DATA_2: 8}  # fields of a page's own header, by its type
WIDTH = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of a value, by the type of a column: INT32 to DOUBLE


class Thrift(io.BytesIO):
    """Decoder of Thrift's compact protocol: structs become dicts by field number, as parquet.thrift has them."""

    def byte(self):
        """The next byte."""
        return self.read(1)[0]

    def varint(self):
        """An unsigned number, of seven bits a byte."""
        byte = self.byte()
        return byte if byte < 128 else byte - 128 + (self.varint() << 7)

    def signed(self):
        """A signed number."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def value(self, kind, in_list=False):
        """A value of one of the protocol's types."""
        if kind in (1, 2):
            return self.byte() == 1 if in_list else kind == 1
        if kind in (3, 4, 5, 6):
            return self.byte() if kind == 3 else self.signed()
        if kind in (7, 8):
            return struct.unpack("<d", self.read(8))[0] if kind == 7 else self.read(self.varint())
        if kind in (9, 10):
            head = self.byte()
            return [self.value(head & 15, True) for _ in range(head >> 4 if head < 240 else self.varint())]
        refuse(kind != 12, "unknown type of Thrift")
        return self.struct()

    def struct(self):
        """A struct."""
        fields, number = {}, 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.signed()
            fields[number] = self.value(head & 15)
        return fields


def check_chunk(chunk, meta, leaf, rows):
    """The bytes of a column chunk against its metadata in the footer."""
    pages, size, values, rows_2, thrift = Counter(), 0, 0, [], Thrift(chunk)
    while (start := thrift.tell()) < len(chunk):
        page = thrift.struct()
        kind, plain, packed = page[1], page[2], page[3]
        refuse(kind not in PAGE_HEADER or page.keys() != {1, 2, 3, 4, PAGE_HEADER[kind]}, "fields of a page")
        refuse(not 0 <= packed <= len(chunk) - thrift.tell(), "a page ends elsewhere")
        size += thrift.tell() - start + plain
        refuse(zlib.crc32(thrift.read(packed)) != page[4] & 0xFFFFFFFF, "checksum of a page")
        header = page[PAGE_HEADER[kind]]
        encoding = header[4 if kind == DATA_2 else 2]
        pages[kind == DICTIONARY, encoding] += 1
        if kind == DICTIONARY:
            width = WIDTH.get(leaf[1], leaf.get(2))  # or that of FIXED_LEN_BYTE_ARRAY
            refuse(pages.total() > 1 or encoding not in (0, 2), "a dictionary in another place, or encoding")
            refuse(width and plain != header[1] * width, "size of a dictionary")
        else:
            values += header[1]
        if kind == DATA:
            refuse(not {header[3], header[4]} <= {3, 4}, "encoding of levels")
        if kind == DATA_2:
            rows_2.append(header[3])
            refuse(not header.get(7, True) and plain != packed, "sizes of a page that is not compressed")
    refuse(size != meta[6] or values != meta[5] or rows_2 and sum(rows_2) != rows, "sizes, values, or rows")
    refuse({encoding for _, encoding in pages} - set(meta[2]), "encodings")
    told = Counter()
    for stat in meta.get(13, []):  # Arrow calls data pages of version 2 DATA there
        told[stat[1] == DICTIONARY, stat[2]] += stat[3] if stat[1] in PAGE_HEADER else 0
    refuse(13 in meta and told != pages, "encoding_stats")


def check_pages(data, start, chosen):
    """The chosen columns of a file whose footer begins at the start."""
    footer = Thrift(data[start:]).struct()
    leaves = [element for element in footer[2] if 1 in element]
    for group in footer[4]:
        for index in chosen:
            meta = group[1][index][3]
            first = meta.get(11, meta[9])
            refuse(1 in group[1][index] or meta[1] != leaves[index][1], "another file, or another type")
            refuse(not 4 <= first <= meta[9] or not 0 <= meta[7] <= start - first, "another place")
            check_chunk(data[first : first + meta[7]], meta, leaves[index], group[3])
