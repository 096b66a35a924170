//! What the steps of `nodelet join` share: time, requests, findings.

use std::time::Duration;

use serde_json::{Value, json};

use super::files::Places;
use super::{End, finish};
use crate::check::{Finding, Mark, Report};
use crate::core::instant::{Mono, Now};
use crate::core::join::command::Settings;
use crate::files::write::Disk;
use crate::kube::message::{Outcome, Request, Response};
use crate::kube::text::without_remedy;
use crate::kube::time::Wall;
use crate::process::clock::{self, Clock};
use crate::wire::api::Api;
use crate::wire::api_config::ApiConfig;
use crate::wire::authorization::Authorization;
use crate::wire::secret::Secret;

/// The names of the steps, which stay the same from version to version.
pub(super) const CHECKS: [&str; 17] = [
    "root",
    "joined",
    "name-resolution",
    "tcp",
    "cluster-info",
    "signature",
    "ca",
    "tls",
    "token",
    "csr-create",
    "approval",
    "namesake",
    "certificate",
    "renewal",
    "files",
    "start",
    "ready",
];

/// Time limit of one request.
const CALL: Duration = Duration::from_secs(10);

/// The machine that joins.
pub(super) struct Board {
    /// The name of the Node; empty in an image of many boards.
    pub(super) name: String,
    /// Its address; empty if that is not known yet.
    pub(super) address: String,
    /// Empty if it cannot be read.
    pub(super) boot_id: String,
}

/// One run of `nodelet join`.
pub(super) struct Walk<'a> {
    pub(super) settings: &'a Settings,
    pub(super) board: Board,
    pub(super) places: Places,
    pub(super) disk: Disk,
    /// The URL of the server.
    pub(super) server: String,
    /// When the new certificate expires.
    pub(super) expires: Option<Wall>,
    /// The paths of the new files.
    pub(super) wrote: Vec<String>,
    findings: Vec<Finding>,
    user_agent: &'a str,
    clock: Clock,
    end: Mono,
    print: &'a mut dyn FnMut(&str) -> Result<(), String>,
}

/// What the steps before the files found.
pub(super) struct Joined {
    /// The server, verified, with the credentials to store.
    pub(super) config: ApiConfig,
    /// Who renews the certificate.
    pub(super) renewal: Renewal,
}

/// Who renews the certificate of the agent.
pub(super) enum Renewal {
    /// Nobody: the cluster would not approve a request.
    None,
    /// The cluster, by a request that a controller approves.
    Cluster,
    /// The supervisor of k3s or rke2, which these flags name.
    Supervisor(Vec<String>),
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        board: Board,
        user_agent: &'a str,
        print: &'a mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Self {
        let clock = Clock::start();
        Self {
            settings,
            board,
            places: Places::new(settings.root.as_deref()),
            disk: Disk::default(),
            server: settings.server.clone(),
            expires: None,
            wrote: Vec::new(),
            findings: Vec::new(),
            user_agent,
            end: clock.now().mono.after(settings.timeout),
            clock,
            print,
        }
    }
}

impl Walk<'_> {
    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Waits; false once the time of the command is over.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let left = self.end.since(self.now().mono);
        clock::pause(time.min(left));
        !self.end.since(self.now().mono).is_zero()
    }

    pub(super) fn send(&self, api: &mut Api, request: &Request) -> Outcome {
        self.send_within(api, request, CALL)
    }

    /// Sends one request; silence once the time of the command is over.
    pub(super) fn send_within(&self, api: &mut Api, request: &Request, limit: Duration) -> Outcome {
        match self.end.since(self.now().mono) {
            left if left.is_zero() => {
                let limit = self.settings.timeout;
                Outcome::Silent(format!("the time of {limit:?} is over (--timeout)"))
            }
            left => api.call(request, limit.min(left)),
        }
    }

    pub(super) fn api(
        &self,
        config: &ApiConfig,
        check: &'static str,
        remedy: &str,
    ) -> Result<Api, Failed> {
        Api::new(config, self.user_agent).map_err(|why| failed(check, &why, remedy))
    }

    /// [`Self::send`], where silence is a failure.
    pub(super) fn answer(
        &self,
        api: &mut Api,
        request: &Request,
        check: &'static str,
        remedy: &str,
    ) -> Result<Response, Failed> {
        match self.send(api, request) {
            Outcome::Answered(response) => Ok(response),
            Outcome::Silent(line) => Err(failed(check, &line, remedy)),
        }
    }

    /// Adds a finding, and prints it at once.
    pub(super) fn add(&mut self, finding: Finding) {
        if !self.settings.json {
            // A closed stdout must not end a join half way; the files matter more.
            let _ = (self.print)(&finding.line());
        }
        self.findings.push(finding);
    }

    /// Prints the end of the report. Steps that were not taken are skipped.
    pub(super) fn finish(self) -> End {
        // Without a failure, steps are skipped on a board that has joined already.
        let failed = self.findings.iter().find(|f| f.mark == Mark::Failed);
        let cause = failed.map_or("joined", |finding| finding.check);
        let find = |check: &&'static str| {
            // A failure comes after what the same step found before.
            let found = self.findings.iter().rfind(|f| f.check == *check);
            found
                .cloned()
                .unwrap_or_else(|| Finding::skipped(check, cause))
        };
        let report = Report {
            findings: CHECKS.iter().map(find).collect(),
            node_name: self.board.name,
        };
        let members = [
            ("server", json!(self.server)),
            (
                "certificateExpires",
                self.expires.map_or(Value::Null, |at| json!(at.time())),
            ),
            ("wrote", json!(self.wrote)),
        ];
        let json = self.settings.json.then_some(members.as_slice());
        finish("join", &report, json, self.print)
    }
}

/// The finding of a failure, which ends the walk. Boxed, because each step returns it through every
/// caller.
pub(super) type Failed = Box<Finding>;

/// A finding of a failure. `line` may end with a remedy for a running agent, which is dropped.
pub(super) fn failed(check: &'static str, line: &str, remedy: &str) -> Failed {
    Finding::failed(check, without_remedy(line), remedy).into()
}

/// The credentials of a request with a bootstrap token.
pub(super) fn bearer(token: &str) -> Authorization {
    Authorization::Bearer {
        token: Secret::new(token.to_owned()),
        file: None,
    }
}

/// Whether a later attempt may succeed: the server starts, or is busy.
pub(super) fn is_transient(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Silent(_) => true,
        Outcome::Answered(response) => response.code >= 500 || response.code == 429,
    }
}

/// Adds a note for each step that is not needed.
pub(super) fn notes(walk: &mut Walk<'_>, checks: &[&'static str], why: &str) {
    for check in checks {
        walk.add(Finding::note(check, why, ""));
    }
}
