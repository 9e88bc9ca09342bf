use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::http::Port;
use super::super::{Limits, ServeError};
use super::{Site, code};

struct Response {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Site {
    /// Sends a request as it would be typed, with the right Host unless `headers` has one.
    async fn request(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            write!(text, "Host: 127.0.0.1:{}\r\n", self.port).unwrap();
        }
        for (name, value) in headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Response { status, headers, body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Response {
        self.request(&format!("GET {path}"), &[], "").await
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.server.token().secret())
    }
}

#[tokio::test]
async fn the_page_and_its_files_are_isolated() {
    let site = Site::new(Limits::default()).await;
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/?preset=quick", "text/html; charset=utf-8"),
        ("/example", "text/html; charset=utf-8"),
        ("/bench/worker.js", "text/javascript; charset=utf-8"),
        ("/bench/style.css", "text/css; charset=utf-8"),
    ] {
        let response = site.get(path).await;
        assert_eq!((response.status, response.header("content-type")), (200, content_type), "{path}");
        for (header, value) in [
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-embedder-policy", "require-corp"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("access-control-allow-origin", ""),
        ] {
            assert_eq!(response.header(header), value, "{path}: {header}");
        }
    }
    let module = site.get("/v1/client.js").await;
    assert_eq!((module.status, module.header("content-type")), (200, "text/javascript; charset=utf-8"));
    assert_eq!(module.header("access-control-allow-origin"), "*");
    assert_eq!(module.header("cross-origin-resource-policy"), "cross-origin");
    assert!(module.body.contains("export function connect"));
    for path in ["/bench/nothing.js", "/bench/..%2fmod.rs", "/bench/", "/v1/nothing"] {
        assert_eq!(site.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn other_names_for_this_machine_are_refused() {
    let site = Site::new(Limits::default()).await;
    let localhost = format!("localhost:{}", site.port);
    assert_eq!(site.request("GET /", &[("Host", &localhost)], "").await.status, 200);
    let rebound = format!("evil.example:{}", site.port);
    for host in [rebound.as_str(), "127.0.0.1", "localhost:1", ""] {
        for line in ["GET /", "GET /metrics", "GET /v1/client.js", "POST /v1/windows"] {
            let response =
                site.request(line, &[("Host", host), ("Authorization", &site.bearer())], "{}").await;
            assert_eq!(response.status, 421, "{line} at {host:?}");
        }
    }
}

#[tokio::test]
async fn posted_windows_need_the_token_or_our_own_page() {
    let site = Site::new(Limits::default()).await;
    let begin = json!({ "op": "begin", "name": "curl", "calls": 2 }).to_string();
    let own = format!("http://localhost:{}", site.port);
    let bearer = site.bearer();
    for headers in [
        &[][..],
        &[("Authorization", "Bearer guess")],
        &[("Origin", "https://evil.example")],
        &[("Origin", "http://localhost:3000")],
        &[("Origin", "null")],
    ] {
        let response = site.request("POST /v1/windows", headers, &begin).await;
        assert_eq!((response.status, code(&response.json())), (401, "unauthorized"), "{headers:?}");
    }
    assert!(site.fake.told().detached.is_empty());

    for headers in [
        &[("Authorization", bearer.as_str())][..],
        &[("Origin", own.as_str())],
        &[("Origin", "http://localhost:3000"), ("Authorization", bearer.as_str())],
        &[("Origin", "null"), ("Authorization", bearer.as_str())],
    ] {
        let response = site.request("POST /v1/windows", headers, &begin).await;
        assert_eq!(response.status, 200, "{headers:?}: {}", response.body);
        let origin = headers.iter().find(|(name, _)| *name == "Origin").map_or("", |(_, origin)| origin);
        assert_eq!(response.header("access-control-allow-origin"), origin);
        let ack = response.json();
        assert_eq!((&ack["op"], ack["monotonic_ns"].is_u64()), (&json!("ack"), true));
        let end = json!({ "op": "end", "id": ack["id"] }).to_string();
        let ended = site.request("POST /v1/windows", headers, &end).await;
        assert_eq!((ended.status, &ended.json()["sync_calls"]), (200, &json!(7)));
        let again = site.request("POST /v1/windows", headers, &end).await;
        assert_eq!((again.status, code(&again.json())), (404, "unknown_window"));
    }
}

#[tokio::test]
async fn posts_that_make_no_sense_are_told_so() {
    let site = Site::new(Limits { message_bytes: 500, ..Limits::default() }).await;
    let bearer = site.bearer();
    for (body, status, expected) in [
        ("", 400, "bad_message"),
        ("{", 400, "bad_message"),
        (r#"{"op":"hello","v":1}"#, 400, "bad_message"),
        (r#"{"op":"hello","v":2}"#, 400, "bad_version"),
        (r#"{"op":"windows"}"#, 400, "bad_message"),
        (&"x".repeat(1_000), 429, "limit"),
    ] {
        let response = site.request("POST /v1/windows", &[("Authorization", &bearer)], body).await;
        assert_eq!((response.status, code(&response.json())), (status, expected), "{body}");
    }
    assert_eq!(site.request("DELETE /v1/windows", &[], "").await.status, 405);
}

#[tokio::test]
async fn a_browser_may_ask_whether_a_page_may_post() {
    let site = Site::new(Limits::default()).await;
    let asked = [("Origin", "http://localhost:3000"), ("Access-Control-Request-Method", "POST")];
    let response = site.request("OPTIONS /v1/windows", &asked, "").await;
    assert_eq!(response.status, 204);
    assert_eq!(response.header("access-control-allow-origin"), "http://localhost:3000");
    assert_eq!(response.header("access-control-allow-headers"), "authorization, content-type");
    assert_eq!(response.header("access-control-allow-methods"), "POST");
    assert_eq!(response.header("vary"), "origin");
}

#[tokio::test]
async fn reports_need_the_token_and_pass_on_what_is_asked() {
    let site = Site::new(Limits::default()).await;
    assert_eq!(site.get("/v1/report").await.status, 401);
    let bearer = site.bearer();
    let ask = async |query: &str| {
        site.request(&format!("GET /v1/report?{query}"), &[("Authorization", &bearer)], "").await
    };
    let response = ask("window=append*&window=a%20b&session=firefox&since=2026-01-01T00:00:00Z").await;
    assert_eq!((response.status, response.header("content-type")), (200, "application/json"));
    assert_eq!(
        response.json()["asked"],
        json!({
            "windows": ["append*", "a b"],
            "sessions": ["firefox"],
            "since": "2026-01-01T00:00:00Z",
            "until": null,
        })
    );
    for query in ["since=yesterday", "window=", "window=["] {
        assert_eq!(ask(query).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn metrics_are_on_the_page_port_and_elsewhere_under_any_name() {
    let site = Site::new(Limits::default()).await;
    let response = site.get("/metrics").await;
    assert_eq!((response.status, response.header("content-type")), (200, "text/plain; version=0.0.4"));
    assert!(response.body.contains("opfs_probe_windows_open 0"), "{}", response.body);

    let port = Port::bind_anywhere("0.0.0.0:0").await.unwrap();
    let number = port.address().port();
    let task = tokio::spawn(port.serve_metrics(site.server.clone()));
    let elsewhere = Site {
        port: number,
        fake: site.fake.clone(),
        server: site.server.clone(),
        task: tokio::spawn(async {}),
    };
    let response = elsewhere.request("GET /metrics", &[("Host", "prometheus.example")], "").await;
    assert_eq!(response.status, 200);
    assert_eq!(elsewhere.get("/").await.status, 404);
    task.abort();
}

#[tokio::test]
async fn addresses_that_can_not_be_served_are_told_so() {
    let taken = Port::bind("127.0.0.1:0").await.unwrap();
    let refused = async |listen: String| Port::bind(&listen).await.err().unwrap();
    let error = refused(taken.address().to_string()).await;
    assert!(matches!(error, ServeError::PortTaken { .. }), "{error}");
    assert!(error.to_string().contains("the port is taken"), "{error}");
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let error = refused(listen.to_owned()).await;
        assert!(matches!(error, ServeError::NotLoopback { .. }), "{error}");
    }
    for listen in ["", "8787", "127.0.0.1", "example.org:80", "127.0.0.1:65536"] {
        let error = refused(listen.to_owned()).await;
        assert!(matches!(error, ServeError::NotAnAddress { .. }), "{error}");
    }
    assert!(Port::bind("localhost:0").await.unwrap().address().ip().is_loopback());
}

#[tokio::test]
async fn a_connection_that_asks_for_nothing_is_closed() {
    let site = Site::new(Limits { request_wait: Duration::from_millis(80), ..Limits::default() }).await;
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
    let start = Instant::now();
    let trickle = async {
        for byte in b"GET / HTTP/1.1\r\nHost: ".iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), trickle).await.expect("it is closed");
    assert!(start.elapsed() >= Duration::from_millis(80));
    assert_eq!(site.get("/").await.status, 200);
}
