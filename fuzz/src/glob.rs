//! Globs: the result is the same as that of a matcher that tries every length for each star.

use scrubjay_core::glob::Glob;

/// Checks a pattern, a line feed, and a name.
pub fn check(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(pattern) = std::str::from_utf8(&data[..at]) else { return };
    let name = &data[at + 1..];
    let glob = Glob::new(pattern);
    assert_eq!(
        glob.matches_bytes(name),
        fits(pattern.as_bytes(), name),
        "{pattern:?} {:?}",
        name.escape_ascii()
    );
    if let Ok(name) = std::str::from_utf8(name) {
        assert_eq!(glob.matches(name), glob.matches_bytes(name.as_bytes()));
    }
    let written = serde_json::to_value(&glob).expect("a pattern is text");
    assert_eq!(written, pattern);
    match Glob::parse(pattern) {
        Ok(parsed) => assert_eq!(parsed, glob),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    if !pattern.contains('*') {
        assert!(glob.matches(pattern));
    }
    assert!(
        Glob::new(&format!("{pattern}*"))
            .matches_bytes(&[pattern.replace('*', "x").as_bytes(), name].concat())
    );
}

/// Matches by keeping every position of the name that the pattern so far can reach.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for sign in pattern {
        if *sign == b'*' {
            let first = reached.iter().position(|is| *is).unwrap_or(reached.len());
            reached[first..].fill(true);
        } else {
            for at in (0..name.len()).rev() {
                reached[at + 1] = reached[at] && name[at] == *sign;
            }
            reached[0] = false;
        }
    }
    reached[name.len()]
}
