//! Words that a task suggests without saying them: by a shell command, the form of a value, or a question.

/// Shell commands that people type out of habit, and words for what they do.
const COMMANDS: &[(&str, &str)] = &[
    ("cat", "read file"),
    ("cd", "directory"),
    ("chmod", "permission file"),
    ("cp", "copy file"),
    ("curl", "load url"),
    ("df", "disk usage"),
    ("grep", "search text content"),
    ("kubectl", "kubernetes pod"),
    ("ls", "list directory"),
    ("mkdir", "create directory"),
    ("mv", "move file"),
    ("ocr", "recognise text image"),
    ("ps", "list process"),
    ("rm", "delete file"),
    ("touch", "create file"),
];
/// Question words, and words for what usually answers them.
const QUESTIONS: &[(&str, &str)] =
    &[("which", "list"), ("where", "find"), ("many", "count"), ("what", "list get"), ("rid", "delete")];
/// File extensions, and words for such files.
const ENDINGS: &[(&str, &str)] = &[
    ("gif", "image"),
    ("jpeg", "image"),
    ("jpg", "image"),
    ("png", "image"),
    ("sql", "database"),
    ("webp", "image"),
    ("yaml", "manifest"),
];

/// Returns the words that a command stands for.
pub(super) fn command(word: &str) -> impl Iterator<Item = &'static str> + use<> {
    look_up(COMMANDS, word)
}

/// Returns the words that a question suggests.
pub(super) fn question(word: &str) -> impl Iterator<Item = &'static str> + use<> {
    look_up(QUESTIONS, word)
}

/// Returns the words that the form of a value suggests: `/etc/hosts` is a file.
pub(super) fn value_form(value: &str) -> impl Iterator<Item = &'static str> + use<> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let ending = value.rsplit_once('.').map(|(_, ending)| ending);
    let is_ending = |e: &str| (1..=5).contains(&e.len()) && e.bytes().all(|b| b.is_ascii_alphanumeric());
    let words = if value.contains("://") {
        "url page"
    } else if value.contains('@') {
        "email"
    } else if let Some(name) = value.strip_prefix('#') {
        if digits(name) { "issue number" } else { "channel" }
    } else if value.contains('/') || ending.is_some_and(|e| is_ending(e) && !digits(e)) {
        "file path"
    } else {
        ""
    };
    words.split(' ').filter(|word| !word.is_empty()).chain(look_up(ENDINGS, ending.unwrap_or_default()))
}

fn look_up(table: &'static [(&str, &str)], word: &str) -> impl Iterator<Item = &'static str> + use<> {
    let found = table.iter().find(|(key, _)| *key == word);
    found.into_iter().flat_map(|(_, words)| words.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_value_suggests_words() {
        let check = |value: &str, expected: &str| {
            assert_eq!(value_form(value).collect::<Vec<_>>().join(" "), expected, "{value}");
        };
        check("/etc/hosts", "file path");
        check("a.png", "file path image");
        check("https://a.example/b.txt", "url page");
        check("#42", "issue number");
        check("#general", "channel");
        check("me@a.example", "email");
        check("3.14", "");
        check("PROJ-12", "");
    }

    #[test]
    fn commands_suggest_words_for_what_they_do() {
        assert_eq!(command("mkdir").collect::<Vec<_>>(), ["create", "directory"]);
        assert_eq!(command("sing").count(), 0);
    }
}
