"""Byte-level BPE in pure Python, as SmolLM2 uses it: an independent check of the tokenizer library. Slow and short.

Text → special tokens and the stretches between them → single digits and the rest → words (GPT-2's pattern) → bytes,
each written as one printable symbol → merges, lowest rank first → ids. Radford et al. 2019, section 2.2; Sennrich et
al. 2016. What is a letter or a numeral is as new as the Unicode tables of `regex`: another program may cut differently
next to letters added after its own tables.
"""
import itertools
from collections.abc import Iterator, Sequence

import regex

DIGIT = regex.compile(r"\p{N}")          # any numeral of Unicode (½, ², ५), each a piece of its own
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def byte_symbols() -> list[str]:
    """Byte → the symbol that stands for it: itself where Latin-1 prints it, else the next unused one from U+0100 on."""
    symbols, unused = [], iter(map(chr, range(0x100, 0x200)))
    for byte in range(256):
        prints = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        symbols.append(chr(byte) if prints else next(unused))
    return symbols


def cut_at(pattern: regex.Pattern, text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, in order: what matches (True) and what lies between matches (False)."""
    end = 0
    for match in pattern.finditer(text):
        if match.start() > end:
            yield text[end:match.start()], False
        yield match.group(), True
        end = match.end()
    if end < len(text):
        yield text[end:], False


class BytePairReference:
    """Encodes and decodes, given tokens in order of id, merges ("left right", best first) and special tokens."""

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], special: Sequence[str]) -> None:
        self.tokens, self.special = tokens, set(special)
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.rank = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self.symbols = byte_symbols()
        self.bytes = {symbol: byte for byte, symbol in enumerate(self.symbols)}
        longest_first = sorted(special, key=len, reverse=True)
        self.special_pattern = regex.compile("|".join(map(regex.escape, longest_first)) or r"(?!)")

    def dropped_bytes(self) -> list[int]:
        """Bytes whose symbol is no token: they vanish in `encode`. 21 of 256 in SmolLM2, 8 of them valid in UTF-8."""
        return [byte for byte, symbol in enumerate(self.symbols) if symbol not in self.ids]

    def encode(self, text: str) -> list[int]:
        """Text → ids; special tokens written out in the text become their own ids."""
        ids: list[int] = []
        for stretch, is_special in cut_at(self.special_pattern, text):
            if is_special:
                ids.append(self.ids[stretch])
                continue
            for piece, _ in cut_at(DIGIT, stretch):
                for word in WORD.findall(piece):         # the pattern sees one piece: no look-ahead past a digit
                    ids.extend(self.ids[token] for token in self.merge(word))
        return ids

    def merge(self, word: str) -> list[str]:
        """One word → its tokens: unknown bytes are dropped, then the best-ranked pair is joined until none is left."""
        parts = [self.symbols[byte] for byte in word.encode() if self.symbols[byte] in self.ids]
        while len(parts) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in itertools.pairwise(parts)]
            best = min(range(len(ranks)), key=ranks.__getitem__)         # the leftmost of equals
            if ranks[best] == len(self.rank):
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return parts

    def decode(self, ids: Sequence[int]) -> str:
        """Ids → text, special tokens written out; bytes that are no UTF-8 become U+FFFD."""
        tokens = (self.tokens[i] for i in ids)
        data = (t.encode() if t in self.special else bytes(self.bytes[symbol] for symbol in t) for t in tokens)
        return b"".join(data).decode(errors="replace")
