//! A map of limited size, for tables that are filled by what peers send.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A map that drops its oldest key when it is full.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    map: HashMap<K, (u64, V)>,
    order: VecDeque<(u64, K)>,
    stamp: u64,
    max: usize,
}

impl<K: Hash + Eq + Clone, V> BoundedMap<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self { map: HashMap::new(), order: VecDeque::new(), stamp: 0, max }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key).map(|(_, value)| value)
    }

    /// Returns the value of a key, inserting a default one if it is missing.
    pub(crate) fn get_or_insert_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        if !self.map.contains_key(&key) {
            self.insert(key.clone(), V::default());
        }
        &mut self.map.get_mut(&key).expect("the newest is never forgotten").1
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.map.values().map(|(_, value)| value)
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = (K, V)> {
        self.map.into_iter().map(|(key, (_, value))| (key, value))
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.map.remove(key).map(|(_, value)| value)
    }

    /// Inserts, and returns whether an older key was dropped for it.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        self.stamp += 1;
        self.map.insert(key.clone(), (self.stamp, value));
        self.order.push_back((self.stamp, key));
        let is_full = self.map.len() > self.max;
        // The queue still holds keys that were removed or replaced since; their stamp is no longer the current one. It
        // is trimmed at twice the limit, so that replacing one key again and again does not let it grow.
        while self.map.len() > self.max || self.order.len() > self.max * 2 {
            let Some((stamp, oldest)) = self.order.pop_front() else { break };
            if self.map.get(&oldest).is_some_and(|(current, _)| *current == stamp) {
                self.map.remove(&oldest);
            }
        }
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_bounded() {
        let mut bounded = BoundedMap::new(3);
        for n in 0..100 {
            bounded.insert(n % 7, n);
        }
        assert!(bounded.map.len() <= 3 && bounded.order.len() <= 6);
        assert_eq!(bounded.get(&(99 % 7)), Some(&99));
    }
}
