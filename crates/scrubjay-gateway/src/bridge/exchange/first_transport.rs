//! Sends a message to a server of the first HTTP transport, which answers on its one stream and not to the POST.

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;

use super::{Exchange, Failure, next_data, redirect_text};
use crate::bridge::first_transport::{ENDPOINT_MAX, FirstTransport, OpenedStream, resolve};
use crate::bridge::refusal::{HttpAnswer, excerpt};
use crate::bridge::sse::{Event, Parser};
use crate::session::lock;

impl Exchange<'_> {
    /// Sends the message to a server of the first transport, and waits until it is answered on the stream.
    pub(super) async fn post_to(&mut self, first: &FirstTransport, body: Bytes) -> Result<(), Failure> {
        // Added first: the answer may come on the stream before the POST is answered.
        lock(&first.waiting).add(&self.waiting);
        let mut request = self.post_request(body);
        *request.uri_mut() = first.post.clone();
        let done = self.post_and_wait(first, request).await;
        lock(&first.waiting).remove(&self.waiting);
        if done.is_ok() {
            self.waiting.give_up();
        }
        done
    }

    async fn post_and_wait(
        &mut self,
        first: &FirstTransport,
        request: Request<Full<Bytes>>,
    ) -> Result<(), Failure> {
        let response = self.send(request).await?;
        if !response.status().is_success() {
            let answered = HttpAnswer::of(&response);
            let redirect = response.status().is_redirection().then(|| redirect_text(&response));
            let (text, _permit) = self.collect(response.into_body()).await?;
            return self.take_text(answered, redirect, text).await;
        }
        loop {
            let answered = first.answered.notified();
            tokio::pin!(answered);
            // Enabled before the check, so that an answer in between is not missed.
            answered.as_mut().enable();
            if !lock(&first.waiting).shares(&self.waiting) {
                return Ok(());
            }
            self.unless_stopped(answered).await?;
        }
    }

    /// Opens the stream of a server of the first transport, and reads the address for messages from its first event.
    pub(super) async fn open_first_transport(&self) -> Result<OpenedStream, Failure> {
        let mut body = self.open_stream(None).await?;
        let mut parser = Parser::new(self.bridge.endpoint.message_limit);
        let first = async {
            while let Some(Ok(data)) = next_data(&mut body).await {
                let mut events = parser.feed(&data);
                if !events.is_empty() {
                    let first = events.remove(0);
                    return Some((first, events));
                }
            }
            None
        };
        let first = self.unless_stopped(tokio::time::timeout(ENDPOINT_MAX, first)).await?;
        let Ok(Some((Event::Endpoint(named), more))) = first else {
            return Err(Failure::unanswered("the server's stream does not begin with an endpoint"));
        };
        let Some(post) = resolve(&self.bridge.endpoint.url, &named) else {
            let why = format!("the server wants messages sent to another origin{}", excerpt(&named));
            return Err(Failure::unanswered(why));
        };
        Ok(OpenedStream { post, body, parser, more })
    }
}
