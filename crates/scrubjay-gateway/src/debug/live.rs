//! Sends lines as they come, on a WebSocket. A client that reads too slowly is disconnected.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request;
use axum::response::IntoResponse;

use super::rate::{FOLLOWER_MESSAGES, RateLimiter};
use super::ring::{FollowedLines, Ring};
use crate::front::http::body::Response;
use crate::front::http::plain;

/// The longest message that a follower may send.
const RECEIVED_BYTES_MAX: usize = 4096;
/// How long sending the closing frame may take.
const GOODBYE_MAX: Duration = Duration::from_millis(500);

/// Follows a ring on a WebSocket.
pub(super) async fn follow(head: &mut request::Parts, ring: &Arc<Ring>) -> Response {
    let upgrade = match WebSocketUpgrade::from_request_parts(head, &()).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response().map(Into::into),
    };
    let Some(following) = ring.follow() else {
        let why = "too many clients follow already: close one of them first";
        return plain(axum::http::StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let upgrade = upgrade.max_message_size(RECEIVED_BYTES_MAX).max_frame_size(RECEIVED_BYTES_MAX);
    upgrade.on_upgrade(|socket| send(socket, following)).map(Into::into)
}

async fn send(mut socket: WebSocket, mut following: FollowedLines) {
    let messages = RateLimiter::new(FOLLOWER_MESSAGES);
    loop {
        tokio::select! {
            // First: a follower that was dropped gets the closing frame, not the lines that still wait.
            biased;
            () = following.dropped.notified() => return goodbye(&mut socket, "you read too slowly").await,
            received = socket.recv() => match received {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                // Messages of a follower are ignored, within a rate.
                Some(Ok(_)) if messages.take() => {}
                Some(Ok(_)) => return goodbye(&mut socket, "you talk too much").await,
            },
            line = following.lines.recv() => {
                let Some(line) = line else { return };
                tokio::select! {
                    sent = socket.send(Message::Text((&*line).into())) => if sent.is_err() { return },
                    // A closing frame cannot be sent in the middle of a line.
                    () = following.dropped.notified() => return,
                }
            }
        }
    }
}

async fn goodbye(socket: &mut WebSocket, why: &'static str) {
    let frame = CloseFrame { code: close_code::POLICY, reason: why.into() };
    // If the client is gone, the frame does not matter.
    let _ = tokio::time::timeout(GOODBYE_MAX, socket.send(Message::Close(Some(frame)))).await;
}
