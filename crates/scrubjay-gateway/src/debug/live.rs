//! Lines as they come, on a WebSocket. Who does not read fast enough is let go.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request;
use axum::response::IntoResponse;

use super::rate::{RateLimiter, WORDS};
use super::ring::{FollowedLines, Ring};
use crate::front::http::body::Response;
use crate::front::http::plain;

/// Nothing that a follower says is longer.
const HEARD_BYTES_MAX: usize = 4096;
/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_millis(500);

/// Follows a ring on a WebSocket.
pub(super) async fn follow(head: &mut request::Parts, ring: &Arc<Ring>) -> Response {
    let upgrade = match WebSocketUpgrade::from_request_parts(head, &()).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response().map(Into::into),
    };
    let Some(following) = ring.follow() else {
        let why = "too many follow already: close another one first";
        return plain(axum::http::StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let upgrade = upgrade.max_message_size(HEARD_BYTES_MAX).max_frame_size(HEARD_BYTES_MAX);
    upgrade.on_upgrade(|socket| send(socket, following)).map(Into::into)
}

async fn send(mut socket: WebSocket, mut following: FollowedLines) {
    let words = RateLimiter::new(WORDS);
    loop {
        tokio::select! {
            biased;
            () = following.let_go.notified() => return goodbye(&mut socket, "you read too slowly").await,
            heard = socket.recv() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                // Nothing it could say means anything.
                Some(Ok(_)) if words.take() => {}
                Some(Ok(_)) => return goodbye(&mut socket, "you talk too much").await,
            },
            line = following.lines.recv() => {
                let Some(line) = line else { return };
                tokio::select! {
                    sent = socket.send(Message::Text((&*line).into())) => if sent.is_err() { return },
                    // In the middle of a line there is no way to say goodbye.
                    () = following.let_go.notified() => return,
                }
            }
        }
    }
}

async fn goodbye(socket: &mut WebSocket, why: &'static str) {
    let frame = CloseFrame { code: close_code::POLICY, reason: why.into() };
    // It may be gone by now.
    let _ = tokio::time::timeout(GOODBYE_MAX, socket.send(Message::Close(Some(frame)))).await;
}
