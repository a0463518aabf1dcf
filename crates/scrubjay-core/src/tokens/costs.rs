//! The average costs of the pieces of a text in `o200k`, by kind and length.

/// A token: costs are in hundredths of one.
pub(super) const TOKEN: u64 = 100;

/// The costs of words by their number of letters, and of each letter beyond the list.
pub(super) type Costs = (&'static [u16], u64);

/// `word` after a space.
pub(super) const SPACED: Costs =
    (&[0, 100, 100, 101, 102, 105, 112, 114, 125, 125, 141, 141, 150, 161, 170, 190, 220, 245, 255], 25);
/// `word` after anything else.
pub(super) const LOWER: Costs =
    (&[0, 100, 100, 105, 106, 114, 129, 132, 154, 172, 172, 165, 187, 230, 240, 250], 30);
/// `Word` after a space.
pub(super) const SPACED_CAPITAL: Costs =
    (&[0, 100, 100, 103, 103, 111, 119, 114, 134, 154, 168, 174, 180, 192, 210, 240], 30);
/// `Word` after anything else, as in `camelCase`.
pub(super) const CAPITAL: Costs =
    (&[0, 100, 101, 106, 104, 108, 108, 111, 124, 131, 125, 133, 135, 140, 180, 220], 30);
/// `WORD`.
pub(super) const UPPER: Costs = (&[0, 100, 101, 126, 150, 170, 190, 190, 230, 255], 35);
/// `WORDword`.
pub(super) const MIXED: Costs = (&[0, 100, 100, 132, 180, 200, 205, 210, 215, 225], 30);
/// Letters of an id, a hash or base64: they form no words, so the table has few of their sequences.
pub(super) const RANDOM_LOWER: Costs = (&[0, 100, 101, 157, 208, 231, 297, 324], 45);
pub(super) const RANDOM_CAPITAL: Costs = (&[0, 100, 127, 195, 243, 285, 343, 382], 45);
pub(super) const RANDOM_UPPER: Costs = (&[0, 100, 109, 196, 241], 52);
pub(super) const RANDOM_MIXED: Costs = (&[0, 100, 110, 204, 237], 57);
/// Punctuation in a row.
pub(super) const PUNCTUATION: Costs = (&[0, 100, 102, 120, 155, 200, 220], 45);

/// Punctuation between the values of JSON, most of which is in the table.
pub(super) const JSON: Costs = (&[0, 100, 100, 101, 131, 189], 50);

pub(super) fn cost((costs, more): Costs, length: usize) -> u64 {
    let last = costs.len() - 1;
    let known = u64::from(costs[length.min(last)]);
    known + length.saturating_sub(last) as u64 * more
}

/// What the character before a word adds: with some characters, the table has many words as one token.
pub(super) fn lead_cost(lead: u8) -> u64 {
    match lead {
        b' ' | b'_' | b')' | b'*' | b'%' => 0,
        b'.' | b'(' | b'$' => 10,
        b'\\' | b'\'' | b'<' | b'=' => 25,
        b'-' => 41,
        b'/' | b'[' => 51,
        b',' | b'+' | b'?' => 80,
        _ => 97,
    }
}
