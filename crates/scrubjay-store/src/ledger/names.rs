//! Names of enum values in the tables: each enum has one list of pairs, which is read in both directions.

/// Returns the name of a value; empty if the list lacks it.
pub(super) fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: &T) -> &'static str {
    names.iter().find(|(known, _)| known == value).map_or("", |(_, name)| name)
}

/// Returns the value with a name.
pub(super) fn value_of<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}
