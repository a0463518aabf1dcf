//! How many bytes may be kept in memory at once: by the whole process, and for each session.
//!
//! What keeps bytes of a client or a backend beyond the moment takes a [`Charge`] for them first and holds it for
//! as long as it keeps them. Where there is no room, the sender is refused or waits; nothing here decides which.
//! Nobody who holds a charge waits for another one without a deadline, so no two can wait for each other for ever.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Notify;

use crate::session::lock;

/// The key of the limit for the whole process.
pub const PROCESS_KEY: &str = "limits.max_memory";
/// The key of the limit for one session.
pub const SESSION_KEY: &str = "limits.max_session_memory";

/// Who keeps no more than this counts as idle: it may always take one thing more, however large.
const IDLE_BYTES: usize = 256 * 1024;
/// What is no larger than this may use the reserve: an ordinary call fits.
const SMALL_BYTES: usize = 64 * 1024;
/// What is nobody's may use the reserve only for this: there is no telling how much else its sender keeps.
const SMALL_UNOWNED_BYTES: usize = 4 * 1024;
/// What a client says of itself may use the reserve only for this: it stays as long as the session, so that as many
/// clients as there may be sessions could fill the budget with more.
const SMALL_STATE_BYTES: usize = 4 * 1024;
/// One part in this many is reserved for small charges of accounts that hold little.
const RESERVE_PART: usize = 16;
/// One part in this many may wait for one backend that does not read, or be kept of one backend's lists.
const BACKEND_PART: usize = 8;

/// How much may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// By the whole process.
    pub process_bytes_max: usize,
    /// For one session.
    pub session_bytes_max: usize,
}

impl MemoryLimits {
    /// The process needs so many times the longest message: one on its way in, its call, its answer, and others beside.
    pub const MESSAGES_MIN: usize = 8;
    /// How many times the longest message a session needs: a call is in memory twice.
    pub const SESSION_MESSAGES_MIN: usize = 2;
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { process_bytes_max: 128 << 20, session_bytes_max: 32 << 20 }
    }
}

/// What bytes are kept for. Each use has a part of the whole, so that none takes the room of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Bodies of HTTP requests that are being read.
    Body,
    /// Requests under way, parked ones too.
    Call,
    /// Lines on their way from and to backends.
    Backend,
    /// Lines that a client has not read yet, or may ask for again.
    Delivery,
    /// What a client said of itself and follows.
    State,
    /// What backends list, and who owns which name.
    BackendList,
}

impl Use {
    const COUNT: usize = 6;

    fn bytes_max(self, process_bytes_max: usize) -> usize {
        match self {
            Self::Body | Self::State | Self::BackendList => process_bytes_max / 4,
            Self::Call | Self::Backend | Self::Delivery => process_bytes_max / 2,
        }
    }
}

/// There is no room.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "there is no room for {wanted} bytes more in the memory budget of {bytes_max} bytes ({key}): try again later, \
     or raise the limit"
)]
pub struct Full {
    /// The key of the limit.
    pub key: &'static str,
    /// The limit.
    pub bytes_max: usize,
    /// How much more was wanted.
    pub wanted: usize,
}

/// The memory of one process, shared by everything in it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: MemoryLimits,
    used: Mutex<Used>,
    /// Notified when a charge is given back.
    freed: Notify,
    /// Notified when most of it is taken, so that caches are dropped.
    tight: Notify,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_use: [usize; Use::COUNT],
}

/// What is kept for one session, or of one backend.
#[derive(Debug)]
pub struct Account {
    budget: Budget,
    key: &'static str,
    bytes_max: usize,
    used: Mutex<usize>,
}

/// Bytes that are kept; given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    account: Option<Arc<Account>>,
    what: Use,
    /// Whether it may use the reserve while it is small.
    is_trusted: bool,
    bytes: usize,
}

impl Budget {
    /// Makes a budget.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        let (freed, tight) = (Notify::new(), Notify::new());
        Self(Arc::new(Shared { limits, used: Mutex::default(), freed, tight }))
    }

    /// Begins to count what a session keeps.
    #[must_use]
    pub fn session(&self) -> Arc<Account> {
        self.account(SESSION_KEY, self.0.limits.session_bytes_max)
    }

    /// Begins to count what waits for a backend, or what is kept of its lists.
    #[must_use]
    pub fn backend(&self) -> Arc<Account> {
        self.account(PROCESS_KEY, self.0.limits.process_bytes_max / BACKEND_PART)
    }

    fn account(&self, key: &'static str, bytes_max: usize) -> Arc<Account> {
        Arc::new(Account { budget: self.clone(), key, bytes_max, used: Mutex::new(0) })
    }

    /// Returns a charge of nothing, to be resized; who is not trusted leaves the reserve to others.
    #[must_use]
    pub fn nothing(&self, what: Use, is_trusted: bool) -> Charge {
        Charge { budget: self.clone(), account: None, what, is_trusted, bytes: 0 }
    }

    /// Takes room for bytes that are no session's.
    ///
    /// # Errors
    /// There is none.
    pub fn charge(&self, what: Use, bytes: usize) -> Result<Charge, Full> {
        let mut charge = self.nothing(what, true);
        charge.resize(bytes).map(|()| charge)
    }

    /// Waits until most of the room for a use is taken.
    pub(crate) async fn tight(&self) {
        self.0.tight.notified().await;
    }

    /// Returns whether most of the room for a use is taken.
    #[must_use]
    pub fn is_tight(&self, what: Use) -> bool {
        let (used, max) = (lock(&self.0.used), self.0.limits.process_bytes_max);
        is_mostly(used.by_use[what as usize], what.bytes_max(max)) || is_mostly(used.total, max)
    }

    /// Returns how many bytes are kept.
    #[must_use]
    pub fn used(&self) -> usize {
        lock(&self.0.used).total
    }

    /// Takes some bytes more for a use.
    fn take(&self, what: Use, bytes: usize, may_use_reserve: bool) -> Result<(), Full> {
        let max = self.0.limits.process_bytes_max;
        let mut used = lock(&self.0.used);
        let (total, of_use) = (used.total + bytes, used.by_use[what as usize] + bytes);
        let fits = if may_use_reserve {
            total <= max
        } else {
            total <= max - max / RESERVE_PART && of_use <= what.bytes_max(max)
        };
        if fits {
            (used.total, used.by_use[what as usize]) = (total, of_use);
        }
        let is_tight = !fits || is_mostly(total, max) || is_mostly(of_use, what.bytes_max(max));
        drop(used);
        if is_tight {
            self.0.tight.notify_one();
        }
        if fits { Ok(()) } else { Err(Full { key: PROCESS_KEY, bytes_max: max, wanted: bytes }) }
    }

    fn give_back(&self, what: Use, bytes: usize) {
        if bytes > 0 {
            let mut used = lock(&self.0.used);
            used.total -= bytes;
            used.by_use[what as usize] -= bytes;
            drop(used);
            self.0.freed.notify_waiters();
        }
    }
}

fn is_mostly(used: usize, max: usize) -> bool {
    used >= max / 4 * 3
}

impl Account {
    /// Takes room.
    ///
    /// # Errors
    /// There is none.
    pub fn charge(self: &Arc<Self>, what: Use, bytes: usize) -> Result<Charge, Full> {
        let mut charge = self.nothing(what);
        charge.resize(bytes).map(|()| charge)
    }

    /// Takes room, waiting for some.
    ///
    /// # Errors
    /// There was none for so long.
    pub async fn charge_within(
        self: &Arc<Self>,
        what: Use,
        bytes: usize,
        limit: Duration,
    ) -> Result<Charge, Full> {
        let mut charge = self.nothing(what);
        charge.resize_within(bytes, limit).await.map(|()| charge)
    }

    /// Returns a charge of nothing, to be resized.
    #[must_use]
    pub fn nothing(self: &Arc<Self>, what: Use) -> Charge {
        let budget = self.budget.clone();
        Charge { budget, account: Some(self.clone()), what, is_trusted: true, bytes: 0 }
    }

    /// Returns how many bytes are kept.
    #[must_use]
    pub fn used(&self) -> usize {
        *lock(&self.used)
    }
}

impl Charge {
    /// Makes it stand for more bytes, or fewer.
    ///
    /// # Errors
    /// There is no room for more; it stands for what it did.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes <= self.bytes {
            self.give_back(self.bytes - bytes);
            return Ok(());
        }
        let more = bytes - self.bytes;
        let mut keeps_little = true;
        if let Some(account) = &self.account {
            let mut used = lock(&account.used);
            keeps_little = *used <= IDLE_BYTES;
            // Who keeps little may take one thing, however large: otherwise it could never be said.
            if !keeps_little && *used + more > account.bytes_max {
                return Err(Full { key: account.key, bytes_max: account.bytes_max, wanted: more });
            }
            *used += more;
        }
        let small_max = match (&self.account, self.what) {
            (None, _) => SMALL_UNOWNED_BYTES,
            (Some(_), Use::State | Use::BackendList) => SMALL_STATE_BYTES,
            (Some(_), _) => SMALL_BYTES,
        };
        let may_use_reserve = self.is_trusted && keeps_little && bytes <= small_max;
        if let Err(full) = self.budget.take(self.what, more, may_use_reserve) {
            if let Some(account) = &self.account {
                *lock(&account.used) -= more;
            }
            return Err(full);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Makes it stand for more bytes, waiting for room.
    ///
    /// # Errors
    /// There was none for so long.
    pub async fn resize_within(&mut self, bytes: usize, limit: Duration) -> Result<(), Full> {
        let mut refused = match self.resize(bytes) {
            Ok(()) => return Ok(()),
            Err(full) => full,
        };
        let budget = self.budget.clone();
        let retried = async {
            loop {
                let freed = budget.0.freed.notified();
                tokio::pin!(freed);
                // Enabled before looking: what is given back in between is not missed.
                freed.as_mut().enable();
                match self.resize(bytes) {
                    Ok(()) => return,
                    Err(full) => refused = full,
                }
                freed.await;
            }
        };
        let in_time = tokio::time::timeout(limit, retried).await.is_ok();
        if in_time { Ok(()) } else { Err(refused) }
    }

    /// Lets the session keep it no more; the process still does.
    pub(crate) fn leave_account(&mut self) {
        if let Some(account) = self.account.take() {
            *lock(&account.used) -= self.bytes;
        }
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        if let Some(account) = &self.account {
            *lock(&account.used) -= bytes;
        }
        self.budget.give_back(self.what, bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// A line that waits to be delivered, with the room it takes.
#[derive(Debug)]
pub struct Queued {
    text: String,
    /// Nothing for what is short and our own.
    room: SharedRoom,
}

/// The room of a line that is kept in two places: until both have let go of it.
pub(crate) type SharedRoom = Option<Arc<Mutex<Charge>>>;

impl Queued {
    /// Lets a line wait in the room that was taken for it.
    #[must_use]
    pub fn new(text: String, charge: Charge) -> Self {
        Self { text, room: Some(Arc::new(Mutex::new(charge))) }
    }

    /// Shares the room of a line with others that keep it.
    pub(crate) fn sharing(text: String, room: SharedRoom) -> Self {
        Self { text, room }
    }

    /// Returns the line, and the room it takes.
    pub(crate) fn into_parts(self) -> (String, SharedRoom) {
        (self.text, self.room)
    }
}

impl AsRef<[u8]> for Queued {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn budget() -> Budget {
        Budget::new(MemoryLimits { process_bytes_max: 16 * MIB, session_bytes_max: 4 * MIB })
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let budget = budget();
        let session = budget.session();
        let mut charge = session.charge(Use::Call, MIB).expect("there is room");
        charge.resize(3 * MIB).expect("there is room");
        assert_eq!((budget.used(), session.used()), (3 * MIB, 3 * MIB));
        assert_eq!(session.charge(Use::Call, 2 * MIB).expect_err("over its limit").key, SESSION_KEY);
        charge.resize(MIB).expect("less is always fine");
        assert_eq!(budget.used(), MIB);
        drop(charge);
        assert_eq!((budget.used(), session.used()), (0, 0));
    }

    #[test]
    fn an_idle_session_may_always_take_one_thing_that_fits_the_process() {
        let budget = budget();
        let session = budget.session();
        let _facts = session.charge(Use::State, 1000).expect("there is room");
        let _large = session.charge(Use::Call, 8 * MIB).expect("one thing, however large");
        assert!(session.charge(Use::Delivery, 1).is_err(), "not a second one");
    }

    #[test]
    fn no_use_takes_the_room_of_the_others_and_the_reserve_is_for_small_things() {
        let budget = budget();
        let hogs: Vec<_> = (0..64).map(|_| budget.session()).collect();
        let kept: Vec<_> = hogs.iter().filter_map(|hog| hog.charge(Use::Delivery, MIB).ok()).collect();
        assert_eq!(kept.len(), 8, "half of the whole");
        let calls: Vec<_> = hogs.iter().filter_map(|hog| hog.charge(Use::Call, MIB).ok()).collect();
        assert_eq!(calls.len(), 7, "the last part is a reserve");
        assert!(budget.nothing(Use::Body, false).resize(1000).is_err(), "no room for strangers");
        assert!(hogs[0].charge(Use::Call, 1000).is_err(), "nor for who keeps much");
        let quiet = budget.session();
        let call = quiet.charge(Use::Call, 1000).expect("who keeps nothing can make a call");
        drop((kept, calls, call));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_clients_say_of_themselves_never_takes_the_room_of_calls() {
        let budget = budget();
        let crowd: Vec<_> = (0..1000).map(|_| budget.session()).collect();
        let facts: Vec<_> = crowd.iter().filter_map(|one| one.charge(Use::State, 60_000).ok()).collect();
        assert_eq!(facts.len(), 4 * MIB / 60_000, "a quarter of the whole");
        let modest = budget.session();
        let _facts = modest.charge(Use::State, 2000).expect("who says little of itself is let in");
        let _call = modest.charge(Use::Call, 60_000).expect("and can make a call");
    }

    #[tokio::test]
    async fn who_waits_is_served_when_something_is_given_back() {
        let budget = budget();
        let (one, two) = (budget.session(), budget.session());
        let first = one.charge(Use::Body, 4 * MIB).expect("there is room");
        assert!(two.charge_within(Use::Body, 4 * MIB, Duration::from_millis(1)).await.is_err());
        let waiting = tokio::spawn(async move {
            two.charge_within(Use::Body, 4 * MIB, Duration::from_secs(60)).await.is_ok()
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.expect("it does not panic"));
    }
}
