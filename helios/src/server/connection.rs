//! Accepting connections, and letting them go at the end.
//!
//! A connection is accepted only when there is room for it, its headers must arrive in time, and what it is sent must be
//! read. On shutdown the listener closes first, then running requests get the drain time, then the model thread ends, then
//! whatever is left is cut off.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::patience::Patient;
use super::routes::router;
use super::service::{ServerConfig, Service};

/// Pause after the system refuses a connection, for want of descriptors for instance.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// What the model thread may take, once the drain time is over, to finish the step that it is in.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// What the last events and responses may take after the engine has let go of its requests.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ended {
    /// Nothing runs any more.
    InOrder,
    /// The model thread still runs; waiting for it may take for ever.
    ModelThreadStuck,
}

/// Serves until `shutdown` resolves, then stops in order: no new connections, running requests drained or cancelled, the
/// model thread ended, every connection closed.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) -> Ended {
    let routes = router(Arc::clone(&service));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    accept_until(shutdown, listener, &service.config, &routes, &stopped, &mut connections).await;
    service.stop();
    stopping.send_replace(true);
    let drain_timeout = service.config.drain_timeout;
    let drain_timeout_ms = u64::try_from(drain_timeout.as_millis()).unwrap_or(u64::MAX);
    // Connections go on as tasks of their own meanwhile: the engine's last events end their responses.
    let engine = timeout(drain_timeout + STEP_TIMEOUT, service.engine.shutdown(drain_timeout_ms)).await;
    let closed = async { while connections.join_next().await.is_some() {} };
    if timeout(FLUSH_TIMEOUT, closed).await.is_err() {
        tracing::warn!("connections were cut off: they did not end with their requests");
    }
    connections.shutdown().await;
    if engine.is_ok() { Ended::InOrder } else { Ended::ModelThreadStuck }
}

async fn accept_until(
    shutdown: impl Future<Output = ()>,
    listener: TcpListener,
    config: &ServerConfig,
    routes: &Router,
    stopped: &watch::Receiver<bool>,
    connections: &mut JoinSet<()>,
) {
    let room = Arc::new(Semaphore::new(config.connections_max));
    tokio::pin!(shutdown);
    loop {
        let accepted = async {
            let place = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, place)
        };
        tokio::select! {
            () = &mut shutdown => return,
            Some(_) = connections.join_next() => {}
            (accepted, place) = accepted => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, place, config.clone(), routes.clone(), stopped.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

async fn connection(
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    config: ServerConfig,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
) {
    // A token is sent as soon as it is there; a connection without the option only gets it later.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY was refused");
    }
    let routes = routes.map_request(|request: Request<Incoming>| request.map(Body::new));
    let stream = TokioIo::new(Patient::new(stream, config.send_timeout));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_buf_size(config.header_bytes_max)
        .serve_connection(stream, TowerToHyperService::new(routes));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        // The only change is the stop; a closed channel means the same.
        _ = stopped.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        // Clients that leave, or that speak no HTTP, are none of the operator's business.
        tracing::debug!(%error, "a connection ended early");
    }
}
