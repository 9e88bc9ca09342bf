//! The loopback port: the page and its files, windows by WebSocket and POST, reports, metrics.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL,
    CONTENT_TYPE, ORIGIN, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Server;
use super::answer::{Answer, Code, Refusal};
use super::connection::{begin_detached, end_detached};
use super::error::ServeError;
use super::guard::{GuardedListener, Guest};
use super::origin::{Origin, OwnNames, bearer};
use super::page::PageFile;
use super::protocol::{Message, parse, too_long};
use super::watch::Peer;
use super::ws;
use crate::metrics;

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const EMBEDDER_POLICY: HeaderName = HeaderName::from_static("cross-origin-embedder-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// HTTP connections at once beyond the clients: page loads, scrapes, reports.
const SPARE_CONNECTIONS: usize = 128;

/// A port that is being listened on.
pub struct Port {
    listener: TcpListener,
    address: SocketAddr,
}

impl Port {
    /// Listens on a loopback address; port 0 is any free one. For [`Port::serve`].
    pub async fn bind(listen: &str) -> Result<Self, ServeError> {
        let address = parse_address(listen)?;
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback { listen: listen.to_owned() });
        }
        Self::bind_to(address, listen).await
    }

    /// Listens on any address. For [`Port::serve_metrics`].
    pub async fn bind_anywhere(listen: &str) -> Result<Self, ServeError> {
        Self::bind_to(parse_address(listen)?, listen).await
    }

    async fn bind_to(address: SocketAddr, listen: &str) -> Result<Self, ServeError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::PortTaken { listen: listen.to_owned() },
            _ => ServeError::Listen { listen: listen.to_owned(), source },
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The address with the port that was found.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the page and its clients. Dropping this future closes the port; who is connected stays
    /// so until the runtime ends.
    pub async fn serve(self, server: Arc<Server>) -> io::Result<()> {
        let connections = server.limits.clients + SPARE_CONNECTIONS;
        let wait = server.limits.request_wait;
        let router = page_router(Site { server, own: OwnNames::new(self.address), address: self.address });
        let listener = GuardedListener::new(self.listener, connections, wait);
        axum::serve(listener, router.into_make_service_with_connect_info::<Guest>()).await
    }

    /// Serves the metrics and nothing else.
    pub async fn serve_metrics(self, server: Arc<Server>) -> io::Result<()> {
        let wait = server.limits.request_wait;
        let router = Router::new().route("/metrics", get(show_metrics)).with_state(server);
        let listener = GuardedListener::new(self.listener, SPARE_CONNECTIONS, wait);
        axum::serve(listener, router.into_make_service_with_connect_info::<Guest>()).await
    }
}

/// `localhost` is taken as 127.0.0.1, whatever the resolver says.
fn parse_address(listen: &str) -> Result<SocketAddr, ServeError> {
    let numeric = match listen.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => listen.to_owned(),
    };
    numeric.parse().map_err(|_| ServeError::NotAnAddress { listen: listen.to_owned() })
}

/// What the handlers of the page's port share.
#[derive(Clone)]
struct Site {
    server: Arc<Server>,
    own: OwnNames,
    address: SocketAddr,
}

impl Site {
    fn peer(&self, guest: &Guest) -> Peer {
        Peer::Tcp { peer: guest.address, local: self.address }
    }
}

fn page_router(site: Site) -> Router {
    let message_bytes = site.server.limits.message_bytes;
    let windows =
        get(open_socket).post(announce).options(preflight).layer(DefaultBodyLimit::max(message_bytes));
    Router::new()
        .route("/", get(async || page_file("index.html")))
        .route("/example", get(async || page_file("example.html")))
        .route("/bench/{name}", get(async |Path(name): Path<String>| page_file(&name)))
        .route("/v1/client.js", get(client_module))
        .route("/v1/windows", windows)
        .route("/v1/report", get(report))
        .route("/metrics", get(show_metrics).with_state(Arc::clone(&site.server)))
        .layer(from_fn_with_state(site.clone(), check_host))
        .layer(from_fn(harden))
        .with_state(site)
}

/// Refuses requests sent to us by another name.
async fn check_host(State(site): State<Site>, request: Request, next: Next) -> Response {
    if site.own.is_host(request.headers()) {
        return next.run(request).await;
    }
    let message = format!("this is http://{}/, and it is asked for under another name", site.address);
    (StatusCode::MISDIRECTED_REQUEST, message).into_response()
}

/// What every answer carries, unless its handler says otherwise.
async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(RESOURCE_POLICY).or_insert(HeaderValue::from_static("same-origin"));
    response
}

/// A file of the page, isolated from other origins: that gives its worker the finer clock.
fn page_file(name: &str) -> Response {
    let Some(file) = PageFile::find(name) else {
        return (StatusCode::NOT_FOUND, "there is no such file").into_response();
    };
    let headers = [
        (CONTENT_TYPE, file.content_type()),
        (OPENER_POLICY, "same-origin"),
        (EMBEDDER_POLICY, "require-corp"),
    ];
    (headers, file.text).into_response()
}

/// The module for anybody's page or worker.
async fn client_module() -> Response {
    let headers = [(ACCESS_CONTROL_ALLOW_ORIGIN, "*"), (RESOURCE_POLICY, "cross-origin")];
    (headers, page_file("client.js")).into_response()
}

async fn open_socket(
    State(site): State<Site>,
    ConnectInfo(guest): ConnectInfo<Guest>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let token = match site.own.origin(&headers) {
        Origin::None | Origin::Own => None,
        Origin::Foreign => Some(site.server.token().clone()),
    };
    guest.upgrade();
    let peer = site.peer(&guest);
    ws::answer(upgrade, site.server, peer, token)
}

/// One message of a client that can't hold a socket.
async fn announce(
    State(site): State<Site>,
    ConnectInfo(guest): ConnectInfo<Guest>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let admitted = site.own.origin(&headers) == Origin::Own || site.server.token().admits(bearer(&headers));
    let peer = site.peer(&guest);
    let obeyed = match (admitted, body) {
        (false, _) => Err(no_token()),
        (true, Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(too_long(&site.server.limits))
        }
        (true, Err(rejection)) => Err(Refusal::bad(rejection.body_text())),
        (true, Ok(body)) => obey(&site, peer, &body).await,
    };
    let mut response = answer(&obeyed.unwrap_or_else(Answer::from));
    allow(&mut response, &headers);
    response
}

async fn obey(site: &Site, peer: Peer, body: &[u8]) -> Result<Answer, Refusal> {
    match parse(body, &site.server.limits)? {
        Message::Begin(begin) => site.server.ask(move |watch| begin_detached(watch, &peer, begin)).await?,
        Message::End(end) => site.server.ask(move |watch| end_detached(watch, &peer, end)).await?,
        _ => Err(Refusal::bad("only `begin` and `end` can be posted; use the WebSocket for the rest")),
    }
}

/// Tells a browser that another origin's page may post a message. Whether it is obeyed is up to the
/// token.
async fn preflight(headers: HeaderMap) -> Response {
    let allowed = [
        (ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
    ];
    let mut response = (StatusCode::NO_CONTENT, allowed).into_response();
    allow(&mut response, &headers);
    response
}

/// Lets the page that asked read the answer.
fn allow(response: &mut Response, asked: &HeaderMap) {
    response.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = asked.get(ORIGIN) {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
}

/// Reports name files and programs of every user, so that even local programs need the token.
async fn report(
    State(site): State<Site>,
    headers: HeaderMap,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    if !site.server.token().admits(bearer(&headers)) {
        return answer(&no_token().into());
    }
    match ask_report(&site, &query).await {
        Ok(report) => json_response(StatusCode::OK, report.to_string()),
        Err(refusal) => answer(&refusal.into()),
    }
}

async fn ask_report(site: &Site, query: &[(String, String)]) -> Result<Value, Refusal> {
    let all = |key| query.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str());
    let question = json!({
        "op": "report",
        "windows": all("window").collect::<Vec<_>>(),
        "sessions": all("session").collect::<Vec<_>>(),
        "since": all("since").next_back(),
        "until": all("until").next_back(),
    });
    match parse(question.to_string().as_bytes(), &site.server.limits)? {
        Message::Report(filter) => site.server.ask(move |watch| watch.report(&filter)).await?,
        _ => Err(Refusal::bad("not a question for a report")),
    }
}

async fn show_metrics(State(server): State<Arc<Server>>) -> Response {
    let names = server.limits.metric_names;
    match server.ask(move |watch| metrics::exposition(&watch.metrics(), names)).await {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(refusal) => answer(&refusal.into()),
    }
}

fn no_token() -> Refusal {
    Refusal::new(Code::Unauthorized, "send the probe's token: `Authorization: Bearer TOKEN`")
}

fn answer(answer: &Answer) -> Response {
    let Answer::Error(refusal) = answer else {
        return json_response(StatusCode::OK, answer.to_json());
    };
    let status = match refusal.code {
        Code::BadMessage | Code::BadVersion => StatusCode::BAD_REQUEST,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::UnknownWindow => StatusCode::NOT_FOUND,
        Code::DuplicateWindow => StatusCode::CONFLICT,
        Code::Limit => StatusCode::TOO_MANY_REQUESTS,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = json_response(status, answer.to_json());
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn json_response(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
