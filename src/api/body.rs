//! A response body that is fed through a channel, for logs that are followed.

use axum::body::Body;
use hyper::body::{Bytes, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Chunks that may wait for a slow reader.
const AHEAD: usize = 4;

struct Fed(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Makes a body and the end that feeds it; the body ends when the feeder is dropped.
pub(crate) fn fed() -> (mpsc::Sender<Bytes>, Body) {
    let (feeder, fed) = mpsc::channel(AHEAD);
    (feeder, Body::new(Fed(fed)))
}
