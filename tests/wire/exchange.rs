//! Requests as they are sent, and what counts as an answer.

use std::time::Duration;

use nodelet::kube::message::{BODY_LIMIT, LIST_LIMIT};
use serde_json::Value;

use super::server::*;
use super::*;

#[test]
fn each_method_sends_its_headers_and_nothing_else() {
    let server = Server::start(None, ok);
    let url = format!("http://127.0.0.1:{}/k8s/c-1/", server.port);
    let mut api = Api::new(&kubeconfig(&url, "", "")).unwrap();
    let json = Value::from(1);
    let requests = [
        get(),
        Request::post("/a?b=c", Accept::Object, &json),
        patch("{2}"),
        Request::delete("/pod".into(), &json),
    ];
    for request in requests {
        assert_eq!(api.call(&request, BUDGET), Ok(response(200, "{}")));
    }
    let metadata = "accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;\
                    g=meta.k8s.io;v=v1";
    let want = [
        ("GET /k8s/c-1/api/v1/nodes/pi", "accept: application/json", "", ""),
        ("POST /k8s/c-1/a?b=c", "accept: application/json", "application/json", "1"),
        ("PATCH /k8s/c-1/lease", metadata, "application/merge-patch+json", "{2}"),
        ("DELETE /k8s/c-1/pod", metadata, "application/json", "1"),
    ];
    assert_eq!(server.heard().len(), want.len());
    for (heard, (first, accept, content_type, body)) in server.heard().into_iter().zip(want) {
        let mut lines = vec![
            accept.to_owned(),
            format!("host: 127.0.0.1:{}", server.port),
            format!("user-agent: nodelet/{}", env!("CARGO_PKG_VERSION")),
        ];
        if !body.is_empty() {
            lines.push(format!("content-length: {}", body.len()));
            lines.push(format!("content-type: {content_type}"));
        }
        lines.push(format!("{first} HTTP/1.1"));
        lines.sort();
        let mut sent: Vec<&str> = heard.head.trim().lines().collect();
        sent.sort_unstable();
        assert_eq!(sent, lines);
        assert_eq!(heard.body, body.as_bytes());
    }
}

#[test]
fn every_status_code_is_an_answer() {
    for (head, body, want) in [
        ("201 Created", "x", (201, None)),
        ("404 Not Found", "{}", (404, None)),
        ("409 Conflict", "", (409, None)),
        ("429 Too Many Requests\r\nRetry-After: 7", "{}", (429, Some(7))),
        ("503 Service Unavailable\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT", "", (503, None)),
        ("503 Service Unavailable\r\nRetry-After: -1", "", (503, None)),
        ("302 Found\r\nLocation: /elsewhere", "moved", (302, None)),
        ("307 Temporary Redirect\r\nLocation: /elsewhere", "", (307, None)),
        ("301 Moved\r\nLocation: https://example.com/", "", (301, None)),
    ] {
        let text = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (server, mut api) = serve(PLAIN, move |_, stream| say(stream, &text));
        for request in [get(), patch("{}")] {
            let (code, seconds) = want;
            let want =
                Response { retry_after: seconds.map(Duration::from_secs), ..response(code, body) };
            assert_eq!(answered(api.call(&request, BUDGET)), want, "{head}");
        }
        assert_eq!(server.heard().len(), 2, "{head}: a redirect must not be followed");
    }
}

#[test]
fn chunked_bodies_and_heads_of_some_kilobytes_are_read() {
    let many = "X-Warning: abcdefghij\r\n".repeat(60);
    let chunk = "y".repeat(30_000);
    let text = format!(
        "HTTP/1.1 200 OK\r\n{many}X-Long: {}\r\nTransfer-Encoding: chunked\r\n\r\n7530\r\n{chunk}\r\n2\r\nzz\r\n0\r\n\r\n",
        "b".repeat(8_000)
    );
    let (server, mut api) = serve(TLS, move |_, stream| say(stream, &text));
    for _ in 0..3 {
        assert_eq!(answered(api.call(&get(), BUDGET)).body, format!("{chunk}zz").into_bytes());
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn credentials_are_sent_and_never_logged() {
    drop(logged());
    for (user, want) in [
        ("token: hunter2", "\r\nauthorization: Bearer hunter2\r\n"),
        ("username: me, password: 'hunter2 '", "\r\nauthorization: Basic bWU6aHVudGVyMiA=\r\n"),
    ] {
        let server = Server::start(None, ok);
        let config = kubeconfig(&format!("http://127.0.0.1:{}", server.port), "", user);
        let mut api = Api::new(&config).unwrap();
        answered(api.call(&get(), BUDGET));
        assert!(server.heard()[0].head.contains(want), "{:?}", server.heard());
        let printed = format!("{api:?} {:?}", logged());
        assert!(!printed.contains("hunter2") && !printed.contains("bWU6"), "{printed}");
    }
    assert!(!logged().is_empty(), "no log line");
}

#[test]
fn a_body_and_a_list_have_a_limit() {
    let list = Request { accept: Accept::List, ..get() };
    for (request, length, is_read) in [
        (get(), BODY_LIMIT, true),
        (get(), BODY_LIMIT + 1, false),
        (list.clone(), LIST_LIMIT, true),
        (list, LIST_LIMIT + 1, false),
    ] {
        let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{length:x}");
        let heads = [format!("Content-Length: {length}\r\n"), "X: y\r\n".to_owned(), chunked];
        for head in heads {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n{}", "y".repeat(length));
            let text = if head.starts_with('T') { text + "\r\n0\r\n\r\n" } else { text };
            let (_server, mut api) = serve(PLAIN, move |_, stream| {
                say(stream, &text);
                false
            });
            // An answer that is too large is one, after which the server is as good as before.
            let answer = answered(api.call(&request, BUDGET));
            let refused = answer.accepted().err().map(|refused| refused.to_string());
            let limit = length - 1;
            let want = format!("200: the answer is larger than {limit} bytes");
            assert_eq!(refused, (!is_read).then_some(want));
            assert_eq!(answer.body.len(), if is_read { length } else { 0 });
        }
    }
}

/// Without a length the body ends with the connection; over TLS only `close_notify` proves that the
/// server ended it (RFC 8446, 6.1).
#[test]
fn an_answer_without_a_length_may_not_be_cut_off() {
    let cut = |_: &Heard, stream: &mut dyn Stream| {
        say(stream, "HTTP/1.1 200 OK\r\n\r\n{\"a\":1}");
        false
    };
    let (_server, mut api) = serve(PLAIN, cut);
    assert_eq!(answered(api.call(&get(), BUDGET)).body, b"{\"a\":1}");
    let (_server, mut api) = serve(TLS, cut);
    let why = fails(&mut api, &get());
    assert!(why.ends_with("closed by the server while waiting for the answer"), "{why}");
}
