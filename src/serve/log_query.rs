//! What may be asked of the journal: a query of the kubelet's NodeLogQuery, and the arguments of
//! journalctl that it becomes.
//!
//! `pkg/kubelet/kubelet_server_journal.go` and `kubelet_server_journal_linux.go`. Unlike in the
//! kubelet, no log files are served, and journalctl checks the pattern, which is PCRE2 and not Go's
//! syntax.

use std::time::Duration;

use crate::kube::text::query as values;
use crate::kube::time::Wall;

const MOST_UNITS: usize = 4;
const LONGEST_UNIT: usize = 256;
const MOST_LINES: i64 = 100_000;

/// Why a query is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedQuery {
    /// Status code of HTTP: 400 for a value that cannot be parsed, 406 for a value that is not
    /// allowed.
    pub code: u16,
    /// One line: the value, and what to write.
    pub text: String,
}

/// The arguments of journalctl for the query of a URL; `None` if it asks for nothing.
pub fn arguments(query: &str) -> Result<Option<Vec<String>>, RefusedQuery> {
    let query = LogQuery::parse(query).map_err(|text| RefusedQuery { code: 400, text })?;
    if query == LogQuery::default() {
        return Ok(None);
    }
    query.check().map_err(|text| RefusedQuery { code: 406, text })?;
    Ok(Some(query.arguments()))
}

/// A query whose values can be read.
#[derive(Debug, Default, PartialEq)]
struct LogQuery {
    units: Vec<String>,
    since: Option<Wall>,
    until: Option<Wall>,
    boot: Option<i64>,
    lines: Option<i64>,
    pattern: Option<String>,
}

impl LogQuery {
    /// Upstream: newNodeLogQuery. Here each `query` is the name of a unit, never a file of
    /// /var/log.
    fn parse(query: &str) -> Result<Self, String> {
        let is_named = values(query, "query").next().is_some();
        let units: Vec<String> =
            values(query, "query").filter(|unit| !unit.trim().is_empty()).collect();
        if is_named && units.is_empty() {
            return Err("query is empty: write the name of a unit".to_owned());
        }
        // As Go's `Values.Get`: the first one counts.
        let first = |name| values(query, name).next().filter(|value| !value.is_empty());
        let time = |name| {
            let parsed = first(name).map(|text| {
                let why = format!("{name} {text:?}: write a time like 2026-11-23T14:00:00Z");
                rfc3339(&text).ok_or(why)
            });
            parsed.transpose()
        };
        let number = |name| {
            let parsed = first(name).map(|text| {
                text.parse::<i64>().map_err(|_| format!("{name} {text:?}: write a number"))
            });
            parsed.transpose()
        };
        Ok(Self {
            units,
            since: time("sinceTime")?,
            until: time("untilTime")?,
            boot: number("boot")?,
            lines: number("tailLines")?,
            pattern: first("pattern"),
        })
    }

    /// Upstream: validate, without its checks of log files.
    fn check(&self) -> Result<(), String> {
        let is_unit = |unit: &String| {
            let is_known = |b: u8| b.is_ascii_alphanumeric() || b"-_.:@".contains(&b);
            unit.len() <= LONGEST_UNIT && unit.bytes().all(is_known)
        };
        if let Some(other) = self.units.iter().find(|unit| !is_unit(unit)) {
            return Err(format!("query {other:?}: write the name of a unit"));
        }
        if !(1..=MOST_UNITS).contains(&self.units.len()) {
            return Err(format!("query: name 1 to {MOST_UNITS} units"));
        }
        if self.until.is_some() && self.since > self.until {
            return Err("untilTime is before sinceTime".to_owned());
        }
        if self.boot.is_some_and(|boot| boot > 0) {
            return Err("boot: write 0 for this boot, -1 for the one before".to_owned());
        }
        if self.lines.is_some_and(|lines| !(0..=MOST_LINES).contains(&lines)) {
            return Err(format!("tailLines: write 0 to {MOST_LINES}"));
        }
        Ok(())
    }

    /// Upstream: getLoggingCmd. A value is in one argument with its option (`--unit=NAME`), so
    /// journalctl takes no value for an option. Times are seconds since 1970: journalctl would read
    /// the kubelet's form in the time zone of the board.
    fn arguments(self) -> Vec<String> {
        let time = |option, time: Option<Wall>| time.map(|t| format!("{option}=@{}", t.seconds()));
        let fixed = ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned);
        let mut arguments = Vec::from(fixed);
        arguments.extend(time("--since", self.since));
        arguments.extend(time("--until", self.until));
        arguments.extend(self.lines.map(|lines| format!("--lines={lines}")));
        arguments.extend(self.units.iter().map(|unit| format!("--unit={unit}")));
        arguments.extend(self.pattern.map(|pattern| format!("--grep={pattern}")));
        arguments.extend(self.boot.map(|boot| format!("--boot={boot}")));
        arguments
    }
}

/// Go's `time.RFC3339`, also with an offset, from 1970 on.
fn rfc3339(text: &str) -> Option<Wall> {
    if text.ends_with('Z') {
        return Wall::parse(text);
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
    let time = Wall::parse(&format!("{time}Z"))?;
    let [sign, h1, h2, b':', m1, m2] = *offset.as_bytes() else {
        return None;
    };
    let number = |tens: u8, ones: u8| {
        let digit = |byte: u8| char::from(byte).to_digit(10);
        Some(u64::from(digit(tens)? * 10 + digit(ones)?))
    };
    let (hours, minutes) = (number(h1, h2)?, number(m1, m2)?);
    let offset = Duration::from_secs(hours * 3600 + minutes * 60);
    match sign {
        _ if hours > 24 || minutes > 60 => None,
        b'+' => Some(time.before(offset)),
        b'-' => Some(time.after(offset)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pkg/kubelet/kubelet_server_journal_test.go` Test_newNodeLogQuery.
    #[test]
    fn test_new_node_log_query() {
        let time = || Wall::parse("2019-12-04T02:00:00Z");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let default = LogQuery::default;
        for (query, want) in [
            ("", Some(default())),
            ("unknown=true", Some(default())),
            ("sinceTime=", Some(default())),
            ("sinceTime=2019-12-04 02:00:00.000", None),
            ("sinceTime=2019-12-04T02:00:00Z", Some(LogQuery { since: time(), ..default() })),
            ("untilTime=", Some(default())),
            ("untilTime=2019-12-04 02:00:00.000", None),
            ("untilTime=2019-12-04T02:00:00Z", Some(LogQuery { until: time(), ..default() })),
            ("tailLines=100", Some(LogQuery { lines: Some(100), ..default() })),
            ("tailLines=foo", None),
            ("tailLines= ", None),
            ("pattern=foo", Some(LogQuery { pattern: Some("foo".into()), ..default() })),
            ("boot=", Some(default())),
            ("boot=0", Some(LogQuery { boot: Some(0), ..default() })),
            ("boot=-23", Some(LogQuery { boot: Some(-23), ..default() })),
            ("boot=foo", None),
            ("boot= ", None),
            ("query=", None),
            ("query=   &query=    ", None),
            ("query=foo", Some(LogQuery { units: words(&["foo"]), ..default() })),
            ("query=foo&query=bar", Some(LogQuery { units: words(&["foo", "bar"]), ..default() })),
            (
                "query=foo&query=/bar",
                Some(LogQuery { units: words(&["foo", "/bar"]), ..default() }),
            ),
            (
                "query=/foo&query=\\bar",
                Some(LogQuery { units: words(&["/foo", "\\bar"]), ..default() }),
            ),
        ] {
            assert_eq!(LogQuery::parse(query).ok(), want, "{query}");
        }
    }

    /// The same file's Test_validateServices and Test_nodeLogQuery_validate, without the files and
    /// the pattern, and the edges of each. A refusal names the first wrong value.
    #[test]
    fn test_node_log_query_validate() {
        let named = |length| format!("query={}", "s".repeat(length));
        for (query, code, want) in [
            ("query=svc1", 200, ""),
            ("query=svc1&query=svc2", 200, ""),
            ("query=svc.foo", 200, ""),
            ("query=svc_foo", 200, ""),
            ("query=svc@foo", 200, ""),
            ("query=svc:foo", 200, ""),
            ("query=svc%0A", 406, "query \"svc\\n\""),
            ("query=svc.foo%0A", 406, "query"),
            ("query=svc*&boot=1", 406, "query \"svc*\""),
            ("query=svc/foo", 406, "query \"svc/foo\""),
            ("query=+", 400, "query"),
            (&named(256), 200, ""),
            (&named(257), 406, "query"),
            ("query=a&query=b&query=c&query=d", 200, ""),
            ("query=a&query=b&query=c&query=d&query=e", 406, "query"),
            ("sinceTime=2023-01-04T02:00:00Z", 406, "query"),
            ("boot=0", 406, "query"),
            ("query=svc1&query=/test1.log", 406, "query \"/test1.log\""),
            ("query=/test1.log&query=/test2.log", 406, "query \"/test1.log\""),
            ("query=/test1.log&pattern=foo", 406, "query \"/test1.log\""),
            ("query=svc1&sinceTime=2023-01-04T02:00:00Z", 200, ""),
            ("query=svc1&untilTime=2023-02-04T02:00:00Z", 200, ""),
            (
                "query=a&sinceTime=2023-02-04T02:00:00Z&untilTime=2023-01-04T02:00:00Z",
                406,
                "untilTime",
            ),
            ("query=a&sinceTime=2023-02-04T02:00:00Z&untilTime=2023-02-04T02:00:00Z", 200, ""),
            ("sinceTime=now&boot=1", 400, "sinceTime \"now\""),
            ("query=svc1&boot=-1", 200, ""),
            ("query=svc1&boot=0", 200, ""),
            ("query=svc1&boot=1&tailLines=-1", 406, "boot"),
            ("query=a*&boot=x&tailLines=99999999999999999999", 400, "boot \"x\""),
            ("query=svc1&tailLines=100", 200, ""),
            ("query=svc1&tailLines=0", 200, ""),
            ("query=svc1&tailLines=-1", 406, "tailLines"),
            ("query=svc1&tailLines=100000", 200, ""),
            ("query=svc1&tailLines=100001", 406, "tailLines"),
            ("query=a&tailLines=99999999999999999999", 400, "tailLines \"99999999999999999999\""),
        ] {
            let accepted = RefusedQuery { code: 200, text: String::new() };
            let got = arguments(query).err().unwrap_or(accepted);
            let is_named = got.text.starts_with(want) && !got.text.contains('\n');
            assert!(got.code == code && is_named, "{query}: {got:?}");
        }
    }

    #[test]
    fn a_query_becomes_the_arguments_of_journalctl() {
        assert_eq!(arguments(""), Ok(None));
        let query = "pattern=-e%20--all;&query=nodelet&query=-D&tailLines=50&boot=-1&pattern=x\
                     &sinceTime=2026-11-23T14:00:00%2B02:00&untilTime=2026-11-23T14:00:00.5-00:30";
        let want = [
            "--utc",
            "--no-pager",
            "--output=short-precise",
            "--since=@1795435200",
            "--until=@1795444200",
            "--lines=50",
            "--unit=nodelet",
            "--unit=-D",
            // The first one has a semicolon, which Go drops.
            "--grep=x",
            "--boot=-1",
        ];
        assert_eq!(arguments(query), Ok(Some(want.map(str::to_owned).to_vec())));
    }

    #[test]
    fn a_time_has_a_zone_of_hours_and_minutes() {
        let noon = Wall::parse("2026-11-23T12:00:00Z");
        for text in
            ["2026-11-23T12:00:00Z", "2026-11-23T13:30:00+01:30", "2026-11-23T07:00:00-05:00"]
        {
            assert_eq!(rfc3339(text), noon, "{text}");
        }
        for text in [
            "",
            "Z",
            "2019-12-04 02",
            "2019-12-04 02:00",
            "2019-12-04 02:00:00",
            "+01:00",
            "é+01:00",
            "2026-11-23T12:00:00",
            "2026-11-23T12:00:00+1:00",
            "2026-11-23T12:00:00+01.00",
            "2026-11-23T12:00:00 01:00",
            "2026-11-23T12:00:00+25:00",
            "2026-11-23T12:00:00+0a:00",
            "2026-11-23T12:00:00Z+01:00",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }
}
