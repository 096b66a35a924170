//! One row of a table of flags: how it is written, what it does, and where its value goes. The
//! table of a run is in `flags.rs`, and the table of `nodelet join` in `join/command/mod.rs`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Parser;

use crate::kube::names::{Taint, parse_taints};
use crate::kube::time::parse_duration;

/// The value of a map flag: `k=v,k2=v2`.
pub type Pairs = BTreeMap<String, String>;

/// One flag: how it is written, what it does, and where its value goes in `T`.
#[derive(Debug)]
pub struct Setting<T: 'static> {
    /// Its name.
    pub flag: &'static str,
    /// Its name in the configuration file; empty if it has none there.
    pub field: &'static str,
    /// What its value is; empty for a switch.
    pub value: &'static str,
    /// Its value if none is given; empty if it has no default.
    pub default: &'static str,
    /// The kubelet does not have it.
    pub own: bool,
    /// A part of the short help.
    pub basic: bool,
    /// What it does.
    pub help: &'static str,
    /// The form of its value, and where that goes.
    pub kind: Kind<T>,
}

/// The form of a value, and the function that stores it.
#[derive(Debug)]
pub enum Kind<T: 'static> {
    /// Any text.
    Text(fn(&mut T, String)),
    /// A path; need not be UTF-8.
    Path(fn(&mut T, PathBuf)),
    /// `true` or `false`; optional on the command line.
    Switch(fn(&mut T, bool)),
    /// A number, not below the first limit and not above the second one.
    Number(i32, i32, fn(&mut T, i32)),
    /// `10s`: at least this long. Zero is also valid if it is the default.
    Period(Duration, fn(&mut T, Duration)),
    /// `k=v,…`, with the separator between key and value. A value has no comma. The first
    /// occurrence on the command line replaces the value of the file, and each further one adds to
    /// it. A new flag with a map gets this form; only `--node-labels` has another one, as in the
    /// kubelet.
    Pairs(char, fn(&mut T) -> &mut Pairs),
    /// `key=value:Effect,…`.
    Taints(fn(&mut T, Vec<Taint>)),
}

/// A row of a table: flag, value, default, what it does, and where the value goes.
pub const fn row<T>(
    flag: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
    kind: Kind<T>,
) -> Setting<T> {
    Setting { flag, value, default, help, kind, field: "", own: false, basic: false }
}

/// Flags of one letter.
pub(super) const SHORT: [(char, &str); 3] = [('h', "help"), ('o', "output"), ('v', "v")];

impl<T> Setting<T> {
    /// Sets a value of the command line. Returns its fault if it is out of its range.
    pub(crate) fn set(
        &self,
        target: &mut T,
        text: OsString,
        is_first: bool,
    ) -> Result<Option<String>, String> {
        let name = self.flag;
        let not_utf8 = || format!("--{name}: not UTF-8");
        let utf8 = || text.to_str().ok_or_else(not_utf8);
        match self.kind {
            Kind::Path(set) => set(target, text.into()),
            Kind::Text(set) => {
                // Moved, not copied: if the text is a token, its owner erases only its own copy.
                set(target, text.into_string().map_err(|_| not_utf8())?);
            }
            Kind::Switch(set) => set(target, switch(name, utf8()?)?),
            Kind::Number(least, most, set) => {
                let number = number(name, utf8()?)?;
                set(target, number);
                return Ok(outside(&self.names(), number, least, most));
            }
            Kind::Period(least, set) => {
                let period = parse_duration(utf8()?).map_err(|e| format!("--{name}: {e}"))?;
                set(target, period);
                return Ok(self.too_short(period, least));
            }
            Kind::Taints(set) => {
                set(target, parse_taints(utf8()?).map_err(|e| format!("--{name}: {e}"))?);
            }
            Kind::Pairs(separator, slot) => {
                let more = pairs(name, separator, utf8()?)?;
                let pairs = slot(target);
                if is_first {
                    pairs.clear();
                }
                pairs.extend(more);
            }
        }
        Ok(None)
    }

    /// Reads the value behind the flag, and sets it.
    pub fn read(
        &self,
        target: &mut T,
        is_first: bool,
        parser: &mut Parser,
    ) -> Result<Option<String>, String> {
        let text = value(self.flag, self.takes_value(), parser)?;
        self.set(target, text.unwrap_or_else(|| "true".into()), is_first)
    }

    /// Whether it needs a value.
    pub(super) fn takes_value(&self) -> bool {
        !matches!(self.kind, Kind::Switch(_))
    }

    /// `field (--flag)`, as in the kubelet's errors.
    pub(super) fn names(&self) -> String {
        match self.field {
            "" => format!("--{}", self.flag),
            field => format!("{field} (--{})", self.flag),
        }
    }

    /// The fault of a period. The kubelet has no limits.
    pub(super) fn too_short(&self, period: Duration, least: Duration) -> Option<String> {
        let is_off = period.is_zero() && self.default == "0";
        (period < least && !is_off).then(|| {
            let names = self.names();
            format!("{names} {period:?} is too short; the minimum is {least:?}")
        })
    }

    /// `-o, --output json|text *`; the star marks a flag that the kubelet does not have.
    pub fn spelling(&self) -> String {
        let short = SHORT.iter().find(|(_, flag)| *flag == self.flag);
        let short = short.map_or(String::new(), |(letter, _)| format!("-{letter}, "));
        let value = match (self.value, self.default) {
            ("", "") => String::new(),
            ("", _) => "[=true|false]".to_owned(),
            (value, _) => format!(" {value}"),
        };
        format!("{short}--{}{value}{}", self.flag, if self.own { " *" } else { "" })
    }

    /// What it does, and its default.
    pub fn about(&self) -> String {
        match self.default {
            "" => self.help.to_owned(),
            default => format!("{} (default {default})", self.help),
        }
    }
}

/// The lines of `--help` for `table`, or only those of its basic settings.
pub fn help<T>(table: &[Setting<T>], all: bool) -> String {
    let mut text = String::new();
    for setting in table.iter().filter(|setting| all || setting.basic) {
        columns(&mut text, &setting.spelling(), &setting.about());
    }
    text
}

/// Two columns of 100 characters together. A flag that is too long has a line of its own.
fn columns(text: &mut String, left: &str, right: &str) {
    const RIGHT: usize = 39;
    const END: usize = 100;
    text.push_str("  ");
    text.push_str(left);
    let mut column = if left.len() + 3 < RIGHT { left.len() + 2 } else { END };
    for word in right.split(' ') {
        if column + 1 + word.len() > END {
            text.push('\n');
            column = 0;
        }
        let gap = RIGHT.saturating_sub(column).max(1);
        text.extend(std::iter::repeat_n(' ', gap));
        text.push_str(word);
        column += gap + word.len();
    }
    text.push('\n');
}

/// Sets each setting of `table` to its default.
pub fn set_defaults<T>(table: &[Setting<T>], target: &mut T) {
    for setting in table.iter().filter(|setting| !setting.default.is_empty()) {
        // This cannot fail: a test sets each default.
        let _ = setting.set(target, setting.default.into(), true);
    }
}

/// The setting of a flag.
pub fn find<T>(table: &'static [Setting<T>], flag: &str) -> Option<&'static Setting<T>> {
    table.iter().find(|setting| setting.flag == flag)
}

/// The fault of a number, in the kubelet's words
/// (`pkg/kubelet/apis/config/validation/validation.go`).
pub(super) fn outside(names: &str, number: i32, least: i32, most: i32) -> Option<String> {
    let want = match (least, most) {
        _ if (least..=most).contains(&number) => return None,
        (0, i32::MAX) => "must not be a negative number".to_owned(),
        (1, i32::MAX) => "must be greater than 0".to_owned(),
        (_, i32::MAX) => format!("must be {least} or greater"),
        _ => format!("must be between {least} and {most}, inclusive"),
    };
    Some(format!("{names} {number} {want}"))
}

/// `k=v,k2=v2`, with `separator` instead of `=`; empty items are skipped.
fn pairs(name: &str, separator: char, text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |item: &str| {
        let (key, value) = item.split_once(separator).ok_or_else(|| {
            format!(
                "invalid argument {text:?} for --{name}: malformed pair, expect \
                 string{separator}string"
            )
        })?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    let items = text.split(',').filter(|item| !item.is_empty());
    items.map(pair).collect()
}

fn number(name: &str, text: &str) -> Result<i32, String> {
    text.parse()
        .map_err(|_| format!("invalid argument {text:?} for --{name}: not a number in its range"))
}

/// The value of a flag. The value of a switch stands behind `=`. The next argument is its value
/// only if that argument is `true` or `false`.
pub fn value(
    name: &str,
    takes_value: bool,
    parser: &mut Parser,
) -> Result<Option<OsString>, String> {
    if takes_value {
        return parser.value().map(Some).map_err(|_| format!("flag needs an argument: --{name}"));
    }
    Ok(parser.optional_value().or_else(|| {
        let mut args = parser.try_raw_args()?;
        args.next_if(|word| word == "true" || word == "false")
    }))
}

fn switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "true" | "t" | "T" | "TRUE" | "True" | "1" => Ok(true),
        "false" | "f" | "F" | "FALSE" | "False" | "0" => Ok(false),
        _ => Err(format!("invalid argument {text:?} for --{name}: write true or false")),
    }
}
