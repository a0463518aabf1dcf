//! Text of any size that looks like text: words, sentences and paragraphs.
//!
//! A run of one letter would compress to nothing and make a recorder look better than it is. The same
//! size always gives the same text.

const WORDS: &str = "\
    a about across after agent all and answer before between bird branch by call change clock code each \
    error every field file first flight for from garden has in is it keeps line message morning not note \
    of on one order place plan question reason record remembers result river server session small step \
    story tape that the time to tool winter with word yard";
const SENTENCE_WORDS_MIN: u64 = 4;
const SENTENCE_WORDS_SPREAD: u64 = 12;
const PARAGRAPH_SENTENCES: u32 = 6;

/// Writes a text of exactly `bytes` bytes, all ASCII.
pub(super) fn write(bytes: usize) -> String {
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut text = String::with_capacity(bytes.saturating_add(256));
    let mut dice = RandomNumbers(0x5c12_ab1a);
    let mut sentences = 0_u32;
    while text.len() < bytes {
        write_sentence(&mut text, &words, &mut dice);
        sentences += 1;
        text.push(if sentences.is_multiple_of(PARAGRAPH_SENTENCES) { '\n' } else { ' ' });
    }
    text.truncate(bytes);
    text
}

fn write_sentence(text: &mut String, words: &[&str], dice: &mut RandomNumbers) {
    let start = text.len();
    for _ in 0..SENTENCE_WORDS_MIN + dice.roll(SENTENCE_WORDS_SPREAD) {
        text.push_str(words[dice.roll(words.len() as u64) as usize]);
        text.push(' ');
    }
    text.pop();
    text.push('.');
    text[start..=start].make_ascii_uppercase();
}

/// A linear congruential generator (Knuth's MMIX constants): even enough for prose, and repeatable.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[cfg(test)]
mod tests {
    use super::write;

    #[test]
    fn the_text_has_exactly_the_size_asked_for() {
        for bytes in [0, 1, 7, 4096, 1_000_003] {
            assert_eq!(write(bytes).len(), bytes);
        }
    }

    #[test]
    fn the_same_size_gives_the_same_text_and_a_larger_one_continues_it() {
        assert_eq!(write(500), write(500));
        assert!(write(5000).starts_with(&write(500)));
    }

    #[test]
    fn the_text_reads_like_sentences() {
        let text = write(2000);
        assert!(text.is_ascii() && text.contains(". ") && text.contains(".\n"), "{text}");
        assert!(text.starts_with(|first: char| first.is_ascii_uppercase()), "{text}");
    }
}
