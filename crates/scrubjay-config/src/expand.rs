//! `${VAR}` and `${VAR:-default}` in the strings of a configuration file.
//!
//! Works on the tree, after parsing, so a variable's value is only ever text: never a key, a list or other YAML.
//! `$${` stands for a plain `${`.

use crate::environment::Environment;
use crate::mask::looks_secret;
use crate::node::{Kind, Node, Scalar, Value, below};
use crate::problem::Problem;

/// Puts the variables' values in place; a variable that is not set is a problem.
pub(crate) fn expand(node: &mut Node, environment: &Environment, problems: &mut Vec<Problem>) {
    expand_below(node, "", environment, problems);
}

fn expand_below(node: &mut Node, key: &str, environment: &Environment, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::Null => {}
        Value::Scalar(scalar) => {
            if let Err(message) = expand_scalar(scalar, environment) {
                problems.push(Problem::new(&node.origin, key, message));
            }
        }
        Value::List(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                expand_below(item, &format!("{key}[{i}]"), environment, problems);
            }
        }
        Value::Map(entries) => {
            for (name, value) in entries {
                expand_below(value, &below(key, name), environment, problems);
            }
        }
    }
}

fn expand_scalar(scalar: &mut Scalar, environment: &Environment) -> Result<(), String> {
    if scalar.kind != Kind::Text || !scalar.text.contains("${") {
        return Ok(());
    }
    let mut out = String::with_capacity(scalar.text.len());
    let mut rest = scalar.text.as_str();
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &reference[2..];
            continue;
        }
        out.push_str(before);
        let end = reference.find('}').ok_or("has a ${ without its }: write $${ for a plain ${")?;
        let (name, default) = name_and_default(&reference[2..end])?;
        let value = environment.get(name).filter(|value| default.is_none() || !value.is_empty());
        out.push_str(value.or(default).ok_or_else(|| {
            format!("needs the variable {name}, which is not set: set it, or write ${{{name}:-a default}}")
        })?);
        scalar.expanded = true;
        scalar.secret |= looks_secret(name);
        rest = &reference[end + 1..];
    }
    out.push_str(rest);
    scalar.text = out;
    Ok(())
}

fn name_and_default(inside: &str) -> Result<(&str, Option<&str>), String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok((name, default));
    }
    Err(format!("has ${{{inside}}}, which names no variable: write ${{NAME}}, or $${{ for a plain ${{"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Origin;

    fn check(text: &str, expected: Result<&str, &str>) {
        let environment = Environment::of(&[("HOME", "/h"), ("EMPTY", ""), ("TRAP", "${HOME}\nk: v")]);
        let mut tree = Node::map(Origin::Default);
        tree.put("a.b", Node::text(text, Origin::Default));
        let mut problems = Vec::new();
        expand(&mut tree, &environment, &mut problems);
        let Value::Scalar(scalar) = &tree.get("a").unwrap().get("b").unwrap().value else { panic!() };
        match expected {
            Ok(expected) => {
                assert_eq!(scalar.text, expected, "{text}");
                assert!(problems.is_empty(), "{problems:?}");
            }
            Err(words) => {
                assert_eq!(problems.len(), 1, "{text}");
                assert!(problems[0].message.contains(words), "{problems:?}");
                assert_eq!(problems[0].key, "a.b");
            }
        }
    }

    #[test]
    fn variables_are_put_in_place() {
        check("plain $HOME $", Ok("plain $HOME $"));
        check("${HOME}/x and ${HOME}", Ok("/h/x and /h"));
        check("${NOBODY:-there}", Ok("there"));
        check("${NOBODY:-}", Ok(""));
        check("${EMPTY:-full}", Ok("full"));
        check("${EMPTY}", Ok(""));
        check("$${HOME} costs $$5", Ok("${HOME} costs $$5"));
    }

    #[test]
    fn what_a_variable_holds_is_only_text() {
        check("${TRAP}", Ok("${HOME}\nk: v"));
    }

    #[test]
    fn what_is_not_set_is_named() {
        check("x${NOBODY}", Err("the variable NOBODY, which is not set"));
        check("${HOME", Err("without its }"));
        check("${a b}", Err("names no variable"));
        check("${}", Err("names no variable"));
        check("${1}", Err("names no variable"));
    }

    #[test]
    fn secrets_are_known_by_the_variable_too() {
        let environment = Environment::of(&[("GITHUB_TOKEN", "t0p"), ("HOME", "/h")]);
        for (text, secret) in [("x-${GITHUB_TOKEN}", true), ("${HOME}", false)] {
            let mut scalar = Scalar::new(text.to_owned(), Kind::Text);
            expand_scalar(&mut scalar, &environment).unwrap();
            assert_eq!(scalar.secret, secret);
            assert!(!scalar.quoted().contains("t0p"));
        }
    }
}
