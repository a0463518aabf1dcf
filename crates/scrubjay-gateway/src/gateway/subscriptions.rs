//! Subscriptions of clients: `subscriptions/listen` of the modern era, `resources/subscribe` of the legacy one.
//!
//! The gateway subscribes once to the list changes of every modern backend, and once to a resource for as long as any
//! client wants it. It passes a notification to every client that asked for it, under the client's own subscription id.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::entry::WhyUndelivered;
use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Parts, Splice, quoted};
use scrubjay_core::protocol::{code, meta, method};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::eras::adapted;
use super::owners::resource_not_found;
use super::{Gateway, NO_TIMEOUT, Request};
use crate::backend::connection::Connection;
use crate::backend::{Answer, Backend, CallError, Owner, modern_meta};
use crate::budget::MemoryUse;
use crate::own_info::client_info;
use crate::session::{Call, Session, lock, why_not};

/// How many listening requests there may be: every notification is compared with each of them.
const LISTENERS_MAX: usize = 10_000;
/// How long the acknowledgement of a listening request waits for slow backends.
const LISTEN_SOON: Duration = Duration::from_secs(2);
/// How many resources one client may subscribe to.
const SUBSCRIPTIONS_MAX: usize = 4096;
/// What following a resource takes besides its URI: a task, an entry of the table, a call to the backend. Measured with
/// 20,000 of them.
const FOLLOW_BYTES: usize = 3 * 1024;
/// How long a backend that went away is left alone before it is followed again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// The clients that listen.
#[derive(Default)]
pub(super) struct Listeners {
    all: Mutex<Vec<Arc<Listener>>>,
    next: AtomicU64,
    /// The resources that the gateway follows at their backends: one subscription each for all clients that share one.
    followed: Mutex<HashMap<FollowKey, FollowedResource>>,
}

/// The owner of the connection on which a resource is followed, and its URI.
pub(super) type FollowKey = (Owner, String);

struct FollowedResource {
    followers: usize,
    task: tokio::task::JoinHandle<()>,
    /// The backend's answer to the subscription, once there is one.
    outcome: watch::Receiver<Option<Answer>>,
}

struct Listener {
    number: u64,
    /// The id of the listening request, as JSON.
    id: String,
    call: Arc<Call>,
    methods: Vec<&'static str>,
    uris: Vec<String>,
}

impl Listeners {
    pub(super) fn forget_session(&self, session: &Arc<Session>) {
        lock(&self.all).retain(|l| !Arc::ptr_eq(&l.call.session, session));
    }
}

/// Removes a listener when its request ends, however that happens.
struct ListenerGuard<'a> {
    gateway: &'a Gateway,
    number: u64,
    followed: Vec<FollowKey>,
}

impl Drop for ListenerGuard<'_> {
    fn drop(&mut self) {
        lock(&self.gateway.listeners.all).retain(|l| l.number != self.number);
        for key in &self.followed {
            self.gateway.unfollow(key);
        }
    }
}

/// Unsubscribes from a resource at a legacy backend, on drop: no client follows it any more.
struct UnsubscribeGuard {
    connection: Arc<Connection>,
    params: String,
}

impl Drop for UnsubscribeGuard {
    fn drop(&mut self) {
        self.connection.unfollow();
        let (connection, params) = (self.connection.clone(), std::mem::take(&mut self.params));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A backend that is gone has forgotten anyway.
                let _ =
                    connection.call(None, method::RESOURCES_UNSUBSCRIBE, Some(&params), FOLLOW_AGAIN).await;
            });
        }
    }
}

/// Returns how much memory following a resource takes. Its URI is kept several times: by the session, by its followers,
/// and in the request to the backend.
fn following_bytes(uri: &str) -> usize {
    FOLLOW_BYTES + 4 * uri.len()
}

impl Gateway {
    /// Listens for a modern client until it leaves.
    pub(super) async fn listen(self: &Arc<Self>, request: &mut Request) -> Answer {
        let filter = message::member(request.raw_params(), "notifications");
        let wants = |key| message::member(filter, key).is_some_and(|v| v.get() == "true");
        let methods: Vec<&'static str> = [
            ("toolsListChanged", method::NOTIFICATIONS_TOOLS_LIST_CHANGED),
            ("promptsListChanged", method::NOTIFICATIONS_PROMPTS_LIST_CHANGED),
            ("resourcesListChanged", method::NOTIFICATIONS_RESOURCES_LIST_CHANGED),
        ]
        .into_iter()
        .filter(|(key, _)| wants(key))
        .map(|(_, method)| method)
        .collect();
        let uris: Vec<String> = message::elements(message::member(filter, "resourceSubscriptions"))
            .into_iter()
            .filter_map(|uri| message::string(Some(uri)))
            .collect();
        if uris.len() > SUBSCRIPTIONS_MAX {
            let why = format!("resourceSubscriptions names more than {SUBSCRIPTIONS_MAX} resources");
            return Answer::error(code::INVALID_PARAMS, &why);
        }
        let bytes = uris.iter().map(|uri| following_bytes(uri)).sum();
        match request.call.session.account.charge(MemoryUse::State, bytes) {
            Ok(charge) => request.call.hold(charge),
            Err(full) => return Answer::error(code::INTERNAL, &full.to_string()),
        }
        let granted = filter.map_or("{}", RawValue::get).to_owned();
        let id = request.id.as_raw().to_owned();
        let number = self.listeners.next.fetch_add(1, Ordering::Relaxed);
        let call = request.call.clone();
        let mut leave = ListenerGuard { gateway: self, number, followed: Vec::new() };
        let mut outcomes = Vec::new();
        let follows = futures_util::future::join_all(uris.iter().map(|uri| self.follow(&call, uri))).await;
        // A resource that no backend has is left out; the client learns that when it reads it.
        for (key, outcome) in follows.into_iter().flatten() {
            leave.followed.push(key);
            outcomes.push(outcome);
        }
        // Acknowledged only when the backends are connected, so that no change is missed after that. A backend that is
        // slower announces its lists when it is ready.
        let _ = tokio::time::timeout(LISTEN_SOON, self.wait_until_followed(&call, outcomes)).await;
        let params = format!(r#"{{"_meta":{{"{}":{id}}},"notifications":{granted}}}"#, meta::SUBSCRIPTION_ID);
        let acknowledged =
            message::notification(method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED, Some(&params));
        let listener = Listener { number, id, call: call.clone(), methods, uris };
        let outbox = call.outbox();
        let place = outbox.reserve().await.ok();
        {
            // Under one lock: no notification may reach the client before the acknowledgement.
            let mut all = lock(&self.listeners.all);
            if all.len() >= LISTENERS_MAX {
                return Answer::error(code::INTERNAL, "too many clients listen");
            }
            if let Err(e) = call.session.queue_line(place, acknowledged, WhyUndelivered::ClientLeft) {
                let why = format!("the acknowledgement could not be recorded: {e}");
                return Answer::error(code::INTERNAL, &why);
            }
            all.push(Arc::new(listener));
        }
        std::future::pending().await
    }

    /// Waits until all backends are connected, and have answered the subscriptions to resources.
    async fn wait_until_followed(
        self: &Arc<Self>,
        call: &Arc<Call>,
        outcomes: Vec<watch::Receiver<Option<Answer>>>,
    ) {
        let backends = self.backends();
        futures_util::future::join_all(backends.iter().map(|backend| self.connect(backend, call))).await;
        for mut outcome in outcomes {
            // An error means that it was abandoned: there is no answer to wait for.
            let _ = outcome.wait_for(Option::is_some).await;
        }
    }

    /// Follows a resource at its backend, or adds a follower if it is followed already. Each call needs one `unfollow`.
    ///
    /// # Errors
    /// No backend has the resource: the answer that says so.
    async fn follow(
        self: &Arc<Self>,
        call: &Arc<Call>,
        uri: &str,
    ) -> Result<(FollowKey, watch::Receiver<Option<Answer>>), Answer> {
        let Some(backend) = self.owner_of_uri(call, uri).await else {
            let code = resource_not_found(call.facts.era);
            return Err(Answer::error(code, &format!("resource not found: {uri}")));
        };
        let key = (backend.owner_of(&call.session, call.facts.era), uri.to_owned());
        let mut followed = lock(&self.listeners.followed);
        if let Some(followed) = followed.get_mut(&key) {
            followed.followers += 1;
            return Ok((key, followed.outcome.clone()));
        }
        let (gateway, call, wanted) = (Arc::downgrade(self), call.clone(), uri.to_owned());
        let (answered, outcome) = watch::channel(None);
        let task = tokio::spawn(async move {
            // Only the first request goes on the tape of the client that asked first: it may leave while others still
            // follow.
            let mut on_behalf = Some(&call);
            while let Some(gateway) = gateway.upgrade() {
                match gateway.follow_resource(&backend, &call, on_behalf.take(), &wanted, &answered).await {
                    Ok(()) => return,
                    Err(e) => tracing::debug!(error = %e, "a resource is not followed for a while"),
                }
                drop(gateway);
                tokio::time::sleep(FOLLOW_AGAIN).await;
            }
        });
        followed.insert(key.clone(), FollowedResource { followers: 1, task, outcome: outcome.clone() });
        Ok((key, outcome))
    }

    /// Removes a follower of a resource; without any, the subscription at its backend ends.
    pub(super) fn unfollow(&self, key: &FollowKey) {
        let mut followed = lock(&self.listeners.followed);
        let Some(resource) = followed.get_mut(key) else { return };
        resource.followers -= 1;
        if resource.followers == 0 {
            resource.task.abort();
            followed.remove(key);
        }
    }

    /// Follows a resource until its backend goes away or says that it cannot be followed.
    async fn follow_resource(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Arc<Call>,
        on_behalf: Option<&Arc<Call>>,
        uri: &str,
        answered: &watch::Sender<Option<Answer>>,
    ) -> Result<(), CallError> {
        let connection = match self.connect_for_call(backend, call).await {
            Ok(connection) => connection,
            Err(e) => {
                answered.send_replace(Some(Answer::error(code::INTERNAL, &e.to_string())));
                return Err(e);
            }
        };
        let uri = quoted(uri);
        if connection.era == Era::Modern {
            // A modern backend answers when the subscription ends, so success is assumed.
            answered.send_replace(Some(Answer::Result("{}".to_owned())));
            let wanted = format!(r#"{{"notifications":{{"resourceSubscriptions":[{uri}]}}}}"#);
            let params = adapted(call, Era::Modern, Some(&wanted));
            return connection
                .call(None, method::SUBSCRIPTIONS_LISTEN, params.as_deref(), NO_TIMEOUT)
                .await
                .map(|_| ());
        }
        let params = format!(r#"{{"uri":{uri}}}"#);
        let answer =
            connection.call(on_behalf, method::RESOURCES_SUBSCRIBE, Some(&params), backend.call_timeout());
        let answer = answer.await.inspect_err(|e| {
            answered.send_replace(Some(Answer::error(code::INTERNAL, &e.to_string())));
        })?;
        let refused = matches!(answer, Answer::Error(_));
        answered.send_replace(Some(answer));
        if refused {
            return Ok(());
        }
        connection.follow();
        let _unsubscribe = UnsubscribeGuard { connection: connection.clone(), params };
        connection.closed().await;
        Err(CallError::Unavailable(backend.id.clone(), connection.why_closed()))
    }

    /// Subscribes or unsubscribes a legacy client.
    pub(super) async fn subscribe(self: &Arc<Self>, request: &mut Request) -> Answer {
        let Some(uri) = request.text_param("uri") else {
            return Answer::error(code::INVALID_PARAMS, "params.uri is required");
        };
        let subscriptions = &request.call.session.subscriptions;
        if request.method == method::RESOURCES_UNSUBSCRIBE {
            let followed = lock(subscriptions).remove(&uri);
            if let Some((owner, _)) = followed {
                self.unfollow(&(owner, uri));
            }
            return Answer::Result("{}".to_owned());
        }
        if lock(subscriptions).len() >= SUBSCRIPTIONS_MAX {
            return Answer::error(code::INTERNAL, "too many subscriptions");
        }
        if lock(subscriptions).contains_key(&uri) {
            return Answer::Result("{}".to_owned());
        }
        let charge = match request.call.session.account.charge(MemoryUse::State, following_bytes(&uri)) {
            Ok(charge) => charge,
            Err(full) => return Answer::error(code::INTERNAL, &full.to_string()),
        };
        let (key, mut outcome) = match self.follow(&request.call, &uri).await {
            Ok(followed) => followed,
            Err(unknown) => return unknown,
        };
        if lock(subscriptions).insert(uri.clone(), (key.0.clone(), charge)).is_some() {
            // The client sent the request twice at the same time: one follower is enough.
            self.unfollow(&key);
        }
        let answer = outcome.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        let answer =
            answer.unwrap_or_else(|| Answer::error(code::INTERNAL, "the subscription was abandoned"));
        if matches!(answer, Answer::Error(_)) && lock(subscriptions).remove(&uri).is_some() {
            self.unfollow(&key);
        }
        answer
    }

    /// Checks a backend's greeting, and subscribes to the list changes of a modern one; once for each connection.
    pub(super) fn watch_connection(
        self: &Arc<Self>,
        session: &Session,
        backend: &Backend,
        connection: &Arc<Connection>,
    ) {
        if !connection.mark_watched() {
            return;
        }
        self.observe_greeting(session, backend, connection);
        if connection.era != Era::Modern {
            return;
        }
        let connection = connection.clone();
        tokio::spawn(async move {
            let params = format!(
                r#"{{"_meta":{{{}}},"notifications":{{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}}}"#,
                modern_meta("{}", &client_info())
            );
            // A backend may refuse it. Its lists are requested each time in any case.
            let _ = connection.call(None, method::SUBSCRIPTIONS_LISTEN, Some(&params), NO_TIMEOUT).await;
        });
    }

    /// Passes a change on to the modern clients that listen for it.
    pub(super) fn notify_listeners(
        &self,
        method: &str,
        line: &str,
        uri: Option<&str>,
        concerns: impl Fn(&Session) -> bool,
    ) {
        let listeners: Vec<Arc<Listener>> = lock(&self.listeners.all).clone();
        for listener in listeners {
            let wanted = match uri {
                Some(uri) => listener.uris.iter().any(|u| u == uri),
                None => listener.methods.contains(&method),
            };
            if !wanted || !concerns(&listener.call.session) {
                continue;
            }
            let line = under_subscription(method, line, &listener.id);
            let outbox = listener.call.outbox();
            // A listener that does not read would hold up the notifications of all: its stream ends, and it can listen
            // again.
            let place = outbox.try_reserve().ok();
            if place.is_none() {
                listener.call.cancel();
            }
            if let Err(e) = listener.call.session.queue_line(place, line, why_not(&outbox)) {
                tracing::error!(error = %e, "a message to a listener could not be recorded");
            }
        }
    }
}

/// Returns a notification as part of a client's own subscription.
fn under_subscription(method: &str, line: &str, id: &str) -> String {
    let member = format!(r#""{}":{id}"#, meta::SUBSCRIPTION_ID);
    let parts = Parts::of(line).ok();
    let Some(params) = parts.as_ref().and_then(|p| p.params) else {
        return message::notification(method, Some(&format!(r#"{{"_meta":{{{member}}}}}"#)));
    };
    let meta = message::member(Some(params), "_meta");
    let splice = Splice::new(params.get());
    let changed = match (meta, message::member(meta, meta::SUBSCRIPTION_ID)) {
        (_, Some(old)) => splice.replace(Some(old), id),
        (Some(meta), None) => splice.add_member(Some(meta), meta::SUBSCRIPTION_ID, id),
        (None, None) => splice.add_member(Some(params), "_meta", &format!("{{{member}}}")),
    };
    message::notification(method, Some(&changed.finish()))
}

#[cfg(test)]
mod tests;
