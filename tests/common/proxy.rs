//! A small HTTP proxy for CONNECT, which records its requests.

use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct Proxy {
    pub port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Requires that the request contains `authorization`.
    pub fn start(authorization: &'static str) -> Self {
        Self::with(move |head, board| {
            if !head.contains(authorization) {
                let _ = board.write_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n");
                return;
            }
            let place = head.split(' ').nth(1).unwrap();
            match TcpStream::connect(place) {
                Ok(server) => {
                    board.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                    carry(board, server);
                }
                Err(_) => drop(board.write_all(b"HTTP/1.1 502 No\r\n\r\n")),
            }
        })
    }

    /// `serve` gets the head of each request, and its connection.
    pub fn with(serve: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), heard: Arc::default() };
        let (heard, serve) = (proxy.heard.clone(), Arc::new(serve));
        thread::spawn(move || {
            for board in listener.incoming() {
                let (heard, serve) = (heard.clone(), serve.clone());
                thread::spawn(move || {
                    let mut board = board.unwrap();
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") {
                        if board.read(&mut byte).unwrap_or(0) == 0 {
                            return;
                        }
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8(head).unwrap();
                    heard.lock().unwrap().push(head.clone());
                    serve(&head, &mut board);
                });
            }
        });
        proxy
    }

    /// The heads of all requests.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn carry(board: &TcpStream, server: TcpStream) {
    let (mut up, mut down) = (board.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from, mut to) = (board.try_clone().unwrap(), server);
    let back = thread::spawn(move || {
        let _ = copy(&mut down, &mut up);
        let _ = up.shutdown(Shutdown::Both);
    });
    let _ = copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = back.join();
}
