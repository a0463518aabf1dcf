//! Sections: tables of keys. A key's line in its table has its type, its default, and whether an untrusted file may set
//! it. Checking, layering, `config show`, the name of the variable and trust follow from these.

use std::sync::LazyLock;

use crate::cursor::Cursor;
use crate::layer::Layer;
use crate::sections::Settings;
use crate::setting::{Setting, ShownSetting};

/// A key of the configuration.
pub(crate) struct Key {
    pub(crate) path: String,
    /// Whether any file may set it, even an untrusted one. `ANY_FILE` in this file's tests lists these keys and says why
    /// each is harmless. Every other key may weaken recording, privacy, limits or logging, start or open something, or
    /// lead elsewhere, so a file in the working directory sets it only once its owner trusted that file.
    pub(crate) is_free: bool,
    pub(crate) default: Option<&'static str>,
    /// Reports what is wrong with a value.
    pub(crate) check: fn(&Cursor<'_>),
    /// Adds the lines of `config show` for a checked value.
    pub(crate) show: fn(&Cursor<'_>, &mut Vec<ShownSetting>),
    fits_variable: bool,
}

impl Key {
    /// Returns the environment variable that sets the key.
    pub(crate) fn variable(&self) -> Option<String> {
        self.fits_variable.then(|| format!("SCRUBJAY_{}", self.path.replace('.', "_").to_uppercase()))
    }
}

/// The type of a line in a table: a key's type, an `Option` of one for a key that may be unset, or another section.
pub(crate) trait Part {
    type Value;
    fn keys(path: String, default: Option<&'static str>, is_free: bool, out: &mut Vec<Key>);
    /// Reads the value from all layers together, each of which was checked.
    fn value(layers: &Layer, path: &str) -> Self::Value;
}

impl<T: Setting> Part for T {
    type Value = T::Value;

    fn keys(path: String, default: Option<&'static str>, is_free: bool, out: &mut Vec<Key>) {
        let check = |at: &Cursor<'_>| drop(T::read(at));
        out.push(Key { path, is_free, default, check, show: T::show, fits_variable: T::FITS_VARIABLE });
    }

    fn value(layers: &Layer, path: &str) -> T::Value {
        layers.read::<T>(path).expect("the defaults give every such key, and each layer was checked")
    }
}

impl<T: Setting> Part for Option<T> {
    type Value = Option<T::Value>;

    fn keys(path: String, default: Option<&'static str>, is_free: bool, out: &mut Vec<Key>) {
        <T as Part>::keys(path, default, is_free, out);
    }

    fn value(layers: &Layer, path: &str) -> Self::Value {
        layers.read::<T>(path)
    }
}

/// Makes a section of lines `key: Type = "default", free;`. Only a trusted file may set a key without `free`. With
/// `struct` the section's type is made too; without it, the section is a type of another crate that has these fields.
macro_rules! section {
    ($(#[$doc:meta])* struct $name:ident { $($key:ident: $part:ty $(= $default:literal)? $(, $free:ident)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name { $(pub(crate) $key: <$part as $crate::section::Part>::Value,)* }
        $crate::section::section!($name { $($key: $part $(= $default)? $(, $free)?;)* });
    };
    ($name:ident { $($key:ident: $part:ty $(= $default:literal)? $(, $free:ident)?;)* }) => {
        impl $crate::section::Part for $name {
            type Value = Self;

            fn keys(path: String, _: Option<&'static str>, _: bool, out: &mut Vec<$crate::section::Key>) {
                $(<$part as $crate::section::Part>::keys(
                    $crate::node::below(&path, stringify!($key)),
                    [$($default)?].first().copied(),
                    stringify!($($free)?) == "free",
                    out,
                );)*
            }

            fn value(layers: &$crate::layer::Layer, path: &str) -> Self {
                let at = |key: &str| $crate::node::below(path, key);
                Self { $($key: <$part as $crate::section::Part>::value(layers, &at(stringify!($key))),)* }
            }
        }
    };
}
pub(crate) use section;

// Built once: every layer and every expansion looks keys up.
static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut keys = Vec::new();
    Settings::keys(String::new(), None, false, &mut keys);
    keys
});

/// Returns every key, in the order of the tables.
pub(crate) fn keys() -> &'static [Key] {
    &KEYS
}

/// Returns the key of a path.
pub(crate) fn key(path: &str) -> Option<&'static Key> {
    keys().iter().find(|key| key.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that an untrusted file may set, and why none of them helps an attacker.
    const ANY_FILE: [(&str, &str); 2] = [
        ("records.stale_after", "says only how soon a session hears that others wrote"),
        ("router.shortlist", "says only how many candidates an answer names, within 1 and 15"),
    ];

    /// A key marked `free` fails this test until the list above has a line with the reason.
    #[test]
    fn every_key_needs_trust_unless_a_reason_is_given() {
        let free: Vec<String> = keys().iter().filter(|k| k.is_free).map(|k| k.path.clone()).collect();
        for key in &free {
            assert!(
                ANY_FILE.iter().any(|(allowed, _)| allowed == key),
                "the key {key} is `free`: an untrusted project file could set it. Leave `free` out and mark it *(t)* in \
                 docs/CONFIG.md, or say in ANY_FILE why it does not help an attacker"
            );
        }
        assert_eq!(free.len(), ANY_FILE.len(), "ANY_FILE names a key that is not free: {free:?}");
    }
}
