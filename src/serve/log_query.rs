//! What may be asked of the journal: a query of the kubelet's NodeLogQuery, and the arguments of
//! journalctl that it becomes.
//!
//! `pkg/kubelet/kubelet_server_journal.go` and `kubelet_server_journal_linux.go`, with their texts.
//! There are no log files here, and journalctl checks the pattern: it reads PCRE2, Go would not.

use std::num::IntErrorKind;
use std::time::Duration;

use serde_json::json;

use super::answers::query as values;
use crate::kube::time::Wall;

const MOST_UNITS: usize = 4;
const LONGEST_UNIT: usize = 256;
const MOST_LINES: i64 = 100_000;

/// Why a query is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedQuery {
    /// Status code of HTTP: 400 of a value that cannot be read, 406 of one that is not allowed.
    pub code: u16,
    /// One line for each value, as Kubernetes writes them.
    pub text: String,
}

/// The arguments of journalctl for the query of a URL; `None` if it asks for nothing.
pub fn arguments(query: &str) -> Result<Option<Vec<String>>, RefusedQuery> {
    let mut faults = Faults::default();
    let query = LogQuery::parse(query, &mut faults);
    faults.none(400)?;
    if query == LogQuery::default() {
        return Ok(None);
    }
    query.check(&mut faults);
    faults.none(406)?;
    Ok(Some(query.arguments()))
}

/// A query whose values can be read.
#[derive(Debug, Default, PartialEq)]
struct LogQuery {
    units: Vec<String>,
    files: Vec<String>,
    since: Option<Wall>,
    until: Option<Wall>,
    boot: Option<i64>,
    lines: Option<i64>,
    pattern: Option<String>,
}

impl LogQuery {
    /// newNodeLogQuery.
    fn parse(query: &str, faults: &mut Faults) -> Self {
        let names: Vec<String> = values(query, "query").collect();
        let is_file = |name: &String| name.contains(['/', '\\']);
        let (files, units): (Vec<String>, Vec<String>) = names.iter().cloned().partition(is_file);
        let units: Vec<String> = units.into_iter().filter(|unit| !unit.trim().is_empty()).collect();
        if !names.is_empty() && files.is_empty() && units.is_empty() {
            faults.invalid("query", json!(names), "query cannot be empty");
        }
        // As Go's `Values.Get`: the first one counts.
        let first = |name| values(query, name).next().filter(|value| !value.is_empty());
        let mut time = |name| {
            let text = first(name)?;
            let time = rfc3339(&text);
            if time.is_none() {
                faults.invalid(name, json!(text), "invalid time format");
            }
            time
        };
        let (since, until) = (time("sinceTime"), time("untilTime"));
        let mut number = |name| {
            let text = first(name)?;
            let number = text.parse::<i64>().map_err(|e| match e.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            });
            let fault = |why| format!("strconv.Atoi: parsing {text:?}: {why}");
            number.map_err(|why| faults.invalid(name, json!(text), &fault(why))).ok()
        };
        let (boot, lines) = (number("boot"), number("tailLines"));
        Self { units, files, since, until, boot, lines, pattern: first("pattern") }
    }

    /// validate, without what needs the log files.
    fn check(&self, faults: &mut Faults) {
        for unit in &self.units {
            if unit.len() > LONGEST_UNIT {
                // The words of upstream, whose limit was 100.
                faults.invalid("query", json!(unit), "length must be less than 100");
            } else if !unit.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:@".contains(&b)) {
                faults.invalid("query", json!(unit), "input contains unsupported characters");
            }
        }
        if self.units.len() > MOST_UNITS {
            let number = self.units.len();
            faults.add(format!("query: Too many: {number}: must have at most {MOST_UNITS} items"));
        }
        if !self.files.is_empty() {
            let why = "log files are not read here, only the journal of units";
            faults.invalid("query", json!(self.files), why);
        } else if self.units.is_empty() {
            faults.add("query: Required value: cannot be empty with options".to_owned());
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            faults.invalid("untilTime", json!(until.time()), "must be after `sinceTime`");
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            faults.invalid("boot", json!(boot), "must be less than 1");
        }
        if let Some(lines) = self.lines.filter(|lines| !(0..=MOST_LINES).contains(lines)) {
            let why = format!("must be between 0 and {MOST_LINES}, inclusive");
            faults.invalid("tailLines", json!(lines), &why);
        }
    }

    /// getLoggingCmd. Each value is part of an argument that begins with its option. Times are
    /// seconds since 1970: journalctl would read the kubelet's form in the time zone of the board.
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

/// Faults of values, in the form of apimachinery's `field.ErrorList`.
#[derive(Debug, Default)]
struct Faults(Vec<String>);

impl Faults {
    fn invalid(&mut self, name: &str, value: serde_json::Value, why: &str) {
        self.add(format!("{name}: Invalid value: {value}: {why}"));
    }

    fn add(&mut self, fault: String) {
        if !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    /// Goes on if there is none.
    fn none(&self, code: u16) -> Result<(), RefusedQuery> {
        let text = match self.0.as_slice() {
            [] => return Ok(()),
            [fault] => fault.clone(),
            faults => format!("[{}]", faults.join(", ")),
        };
        Err(RefusedQuery { code, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<LogQuery, RefusedQuery> {
        let mut faults = Faults::default();
        let query = LogQuery::parse(query, &mut faults);
        faults.none(400).map(|()| query)
    }

    fn text(query: &str) -> (u16, String) {
        match arguments(query) {
            Ok(arguments) => (200, format!("{arguments:?}")),
            Err(refused) => (refused.code, refused.text),
        }
    }

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
            ("sinceTime=2019-12-04 02:00:00", None),
            ("sinceTime=2019-12-04 02:00:00.000", None),
            ("sinceTime=2019-12-04 02", None),
            ("sinceTime=2019-12-04 02:00", None),
            ("sinceTime=2019-12-04T02:00:00Z", Some(LogQuery { since: time(), ..default() })),
            ("untilTime=", Some(default())),
            ("untilTime=2019-12-04 02:00:00", None),
            ("untilTime=2019-12-04 02:00:00.000", None),
            ("untilTime=2019-12-04 02", None),
            ("untilTime=2019-12-04 02:00", None),
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
                Some(LogQuery { units: words(&["foo"]), files: words(&["/bar"]), ..default() }),
            ),
            (
                "query=/foo&query=\\bar",
                Some(LogQuery { files: words(&["/foo", "\\bar"]), ..default() }),
            ),
        ] {
            assert_eq!(parsed(query).ok(), want, "{query}");
        }
    }

    /// The same file's Test_validateServices and Test_nodeLogQuery_validate, without the files and
    /// the pattern, and the edges of each.
    #[test]
    fn test_node_log_query_validate() {
        let named = |length| format!("query={}", "s".repeat(length));
        for (query, is_fine) in [
            ("query=svc1", true),
            ("query=svc1&query=svc2", true),
            ("query=svc.foo", true),
            ("query=svc_foo", true),
            ("query=svc@foo", true),
            ("query=svc:foo", true),
            ("query=svc%0A", false),
            ("query=svc.foo%0A", false),
            ("query=svc*", false),
            ("query=svc/foo", false),
            (&named(256), true),
            (&named(257), false),
            ("query=a&query=b&query=c&query=d", true),
            ("query=a&query=b&query=c&query=d&query=e", false),
            ("sinceTime=2023-01-04T02:00:00Z", false),
            ("query=svc1&query=/test1.log", false),
            ("query=/test1.log&query=/test2.log", false),
            ("query=/test1.log&pattern=foo", false),
            ("query=svc1&sinceTime=2023-01-04T02:00:00Z", true),
            ("query=svc1&untilTime=2023-02-04T02:00:00Z", true),
            ("query=a&sinceTime=2023-02-04T02:00:00Z&untilTime=2023-01-04T02:00:00Z", false),
            ("query=a&sinceTime=2023-02-04T02:00:00Z&untilTime=2023-02-04T02:00:00Z", true),
            ("query=svc1&boot=-1", true),
            ("query=svc1&boot=0", true),
            ("query=svc1&boot=1", false),
            ("query=svc1&tailLines=100", true),
            ("query=svc1&tailLines=0", true),
            ("query=svc1&tailLines=-1", false),
            ("query=svc1&tailLines=100000", true),
            ("query=svc1&tailLines=100001", false),
        ] {
            let code = arguments(query).map_or_else(|refused| refused.code, |_| 200);
            assert_eq!(code, if is_fine { 200 } else { 406 }, "{query}");
        }
    }

    #[test]
    fn a_refusal_has_the_words_of_upstream() {
        for (query, code, want) in [
            ("query=a&boot=1", 406, "boot: Invalid value: 1: must be less than 1"),
            (
                "query=a&tailLines=100001",
                406,
                "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
            ),
            ("query=+", 400, "query: Invalid value: [\" \"]: query cannot be empty"),
            ("boot=0", 406, "query: Required value: cannot be empty with options"),
            (
                "query=a&query=b&query=c&query=d&query=e",
                406,
                "query: Too many: 5: must have at most 4 items",
            ),
            (
                "query=a*&query=a*",
                406,
                "query: Invalid value: \"a*\": input contains unsupported characters",
            ),
            (
                "boot=x&tailLines=99999999999999999999",
                400,
                "[boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax, \
                 tailLines: Invalid value: \"99999999999999999999\": strconv.Atoi: parsing \
                 \"99999999999999999999\": value out of range]",
            ),
            ("sinceTime=now", 400, "sinceTime: Invalid value: \"now\": invalid time format"),
        ] {
            assert_eq!(text(query), (code, want.to_owned()), "{query}");
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
