//! Reads values from a tree. A problem is reported with its origin and reading continues, so that a person sees every
//! problem at once.

use std::cell::RefCell;
use std::fmt::Display;

use crate::node::{Kind, Node, Origin, Value, below};
use crate::problem::{Problem, unknown};
use crate::setting::Setting;

/// The most items of a list. 2,000: the raw search for secret names has a few hundred table entries for each name.
const LIST_ITEMS_MAX: usize = 2000;

/// A value, the path of its key, and the list that collects problems.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) node: &'a Node,
    pub(crate) key: String,
    problems: &'a RefCell<Vec<Problem>>,
}

/// Reads a tree with a cursor at its root; returns what is wrong in it too.
pub(crate) fn read<T>(tree: &Node, key: &str, read: impl FnOnce(&Cursor<'_>) -> T) -> (T, Vec<Problem>) {
    let problems = RefCell::default();
    let value = read(&Cursor { node: tree, key: key.to_owned(), problems: &problems });
    (value, problems.into_inner())
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at another value, which reports to the same list.
    pub(crate) fn at<'b>(&self, node: &'b Node, key: String) -> Cursor<'b>
    where
        'a: 'b,
    {
        Cursor { node, key, problems: self.problems }
    }

    pub(crate) fn origin(&self) -> &'a Origin {
        &self.node.origin
    }

    pub(crate) fn is_null(&self) -> bool {
        self.node.value == Value::Null
    }

    /// Reports what is wrong with this value; returns `None`, for a caller that needs the value.
    pub(crate) fn wrong<T>(&self, message: impl Display) -> Option<T> {
        self.problems.borrow_mut().push(Problem::new(self.origin(), &*self.key, message));
        None
    }

    /// Returns a value, or reports the error as wrong with this one.
    pub(crate) fn reported<T>(&self, read: Result<T, impl Display>) -> Option<T> {
        read.map_or_else(|error| self.wrong(error), Some)
    }

    /// Returns what `read` returns, unless it reports a problem.
    pub(crate) fn if_right<T>(&self, read: impl FnOnce() -> Option<T>) -> Option<T> {
        // Counted, because a value below may be wrong without making the whole `None`: `each` skips a wrong item.
        let before = self.problems.borrow().len();
        read().filter(|_| self.problems.borrow().len() == before)
    }

    /// Returns the value of a key of this map.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        Some(self.at(self.node.get(name)?, below(&self.key, name)))
    }

    /// Returns a cursor at this value that reports under the path of one of its keys.
    pub(crate) fn under(&self, name: &str) -> Self {
        self.at(self.node, below(&self.key, name))
    }

    /// Returns a cursor for a problem with a key of this map, which may be missing: then the line of the map is reported.
    pub(crate) fn member_or_self(&self, name: &str) -> Self {
        self.member(name).unwrap_or_else(|| self.under(name))
    }

    /// Returns the value of a required key.
    pub(crate) fn required(&self, name: &str) -> Option<Self> {
        self.member(name).or_else(|| self.under(name).wrong("is required"))
    }

    /// Reads the value of a key of this map, if it is given.
    pub(crate) fn get<T: Setting>(&self, name: &str) -> Option<T::Value> {
        T::read(&self.member(name)?)
    }

    fn members(&self, entries: &'a [(String, Node)]) -> Vec<(&'a str, Self)> {
        entries.iter().map(|(name, node)| (&**name, self.at(node, below(&self.key, name)))).collect()
    }

    /// Returns the entries of a map whose keys are all known; reports the others. Null is an empty map.
    pub(crate) fn entries(&self, known: &[&str]) -> Vec<(&'a str, Self)> {
        let Value::Map(entries) = &self.node.value else {
            if !self.is_null() {
                self.wrong::<()>("must be a map of keys to values");
            }
            return Vec::new();
        };
        let mut members = self.members(entries);
        for (name, at) in members.extract_if(.., |(name, _)| !known.contains(name)) {
            at.wrong::<()>(unknown(name, known));
        }
        members
    }

    /// Returns the entries of a map with any keys.
    pub(crate) fn map_of(&self, what: &str) -> Option<Vec<(&'a str, Self)>> {
        match &self.node.value {
            Value::Map(entries) => Some(self.members(entries)),
            _ => self.wrong(format!("must be a map of {what}")),
        }
    }

    /// Returns the items of a list.
    pub(crate) fn list_of(&self, what: &str) -> Option<Vec<Self>> {
        let Value::List(items) = &self.node.value else {
            return self.wrong(format!("must be a list{what}"));
        };
        if items.len() > LIST_ITEMS_MAX {
            return self.too_long(items.len());
        }
        let items = items.iter().enumerate();
        Some(items.map(|(i, item)| self.at(item, format!("{}[{i}]", self.key))).collect())
    }

    /// Reads every item of a list; `None` if one is wrong.
    pub(crate) fn read_items<T>(&self, what: &str, read: impl Fn(&Self) -> Option<T>) -> Option<Vec<T>> {
        self.if_right(|| Some(self.list_of(what)?.iter().filter_map(read).collect()))
    }

    /// Returns the text. In a file `PORT: 3000` means the text `3000`; in a client's JSON a number is no string.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar(s) if s.kind != Kind::Text && *self.origin() == Origin::Options => {
                self.wrong("must be a string")
            }
            // Paths, arguments and variables of processes cannot contain one.
            Value::Scalar(s) if s.text.contains('\0') => self.wrong("must not contain a NUL character"),
            Value::Scalar(s) => Some(&s.text),
            _ => self.wrong("must be a string"),
        }
    }

    /// Returns the text, which must not be empty.
    pub(crate) fn filled_text(&self) -> Option<&'a str> {
        let text = self.text()?;
        if text.is_empty() { self.wrong("must not be empty") } else { Some(text) }
    }

    fn too_long<T>(&self, items: usize) -> Option<T> {
        self.wrong(format!("has {items} items; the limit is {LIST_ITEMS_MAX}"))
    }

    /// Returns the texts of a list, each with its cursor. Sources without lists separate them by commas.
    fn texts(&self) -> Option<Vec<(&'a str, Self)>> {
        match &self.node.value {
            Value::Scalar(s) if self.origin().lists_with_commas() => {
                let texts = s.text.split(',').map(str::trim).filter(|text| !text.is_empty()).enumerate();
                let texts: Vec<_> =
                    texts.map(|(i, text)| (text, self.at(self.node, format!("{}[{i}]", self.key)))).collect();
                if texts.len() > LIST_ITEMS_MAX { self.too_long(texts.len()) } else { Some(texts) }
            }
            _ => self.read_items("", |item| Some((item.text()?, item.clone()))),
        }
    }

    /// Reads a list of texts with a function that returns an error for a wrong one.
    pub(crate) fn each<T, E: Display>(&self, read: impl Fn(&str) -> Result<T, E>) -> Option<Vec<T>> {
        self.if_right(|| {
            let texts = self.texts()?.into_iter();
            Some(texts.filter_map(|(text, at)| at.reported(read(text))).collect())
        })
    }

    /// Reads a single value with a function that returns `None` for a wrong one.
    pub(crate) fn parse<T>(&self, must_be: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let Some(scalar) = self.node.scalar() else { return self.wrong("must be a single value") };
        read(scalar.text.trim()).or_else(|| self.wrong(format!("must be {must_be}, not {}", scalar.quoted())))
    }
}
