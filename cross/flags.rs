//! The documents' part of the tables of flags:
//!
//!   cargo run --example flags                       writes the tables in systemd/
//!   cargo run --example flags -- manual 'May 1, 2026'   prints the manual page
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::path::Path;
use std::{env, fs, io};

use nodelet::config::flags::SETTINGS;
use nodelet::config::setting::Setting;
use nodelet::join::command::FLAGS;

/// Documents with a table between two comments.
pub const DOCUMENTS: [&str; 2] = ["systemd/flags.md", "systemd/join.md"];
const BEGIN: &str = "<!-- cargo run --example flags -->\n";
const END: &str = "<!-- end -->";

fn main() -> io::Result<()> {
    let mut args = env::args().skip(1);
    if args.next().is_some_and(|word| word == "manual") {
        print!("{}", manual(&args.next().unwrap_or_default()));
        return Ok(());
    }
    for document in DOCUMENTS {
        fs::write(path(document), with_table(document)?)?;
    }
    Ok(())
}

fn path(document: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(document)
}

/// A document with its table as it is now.
pub fn with_table(document: &str) -> io::Result<String> {
    let text = fs::read_to_string(path(document))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| io::Error::other(format!("{document}: no table")))?;
    let table = if document.ends_with("join.md") { table(FLAGS) } else { table(SETTINGS) };
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// A table of Markdown. The fields of the configuration file have a column if there are any.
fn table<T>(settings: &[Setting<T>]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('*', "\\*");
    let has_fields = settings.iter().any(|setting| !setting.field.is_empty());
    let mut text = "| flag | |\n|---|---|\n".to_owned();
    if has_fields {
        text = "| flag | field in `--config` | |\n|---|---|---|\n".to_owned();
    }
    for setting in settings {
        let spelling = setting.spelling();
        let (spelling, own) = match spelling.strip_suffix(" *") {
            Some(spelling) => (spelling, " \\*"),
            None => (spelling.as_str(), ""),
        };
        let spelling = spelling.replace(", ", "`, `").replace('|', "\\|");
        let field = match (has_fields, setting.field) {
            (false, _) => String::new(),
            (true, "") => " |".to_owned(),
            (true, field) => format!(" `{field}` |"),
        };
        text += &format!("| `{spelling}`{own} |{field} {} |\n", cell(&setting.about()));
    }
    text + "| `--version`, `--help` |" + if has_fields { " | |\n" } else { " |\n" }
}

/// nodelet(8).
pub fn manual(date: &str) -> String {
    include_str!("debian/nodelet.8.in")
        .replace("@DATE@", date)
        .replace("@FLAGS@\n", &items(SETTINGS))
        .replace("@JOIN@\n", &items(FLAGS))
}

/// The items of a list of mdoc(7).
fn items<T>(settings: &[Setting<T>]) -> String {
    let mut text = String::new();
    for setting in settings {
        let spelling = setting.spelling();
        let (flag, own) = match spelling.strip_suffix(" *") {
            Some(flag) => (flag, "\nOwn."),
            None => (spelling.as_str(), ""),
        };
        let words = flag.split(' ').map(|word| match word.strip_prefix('-') {
            // A comma and a bracket are arguments of their own.
            Some(flag) => {
                format!(
                    "Fl {}",
                    flag.replace(',', " ,").replace("[=true|false]", " Ns Op =true|false")
                )
            }
            None => format!("Ar {word}"),
        });
        let words: Vec<String> = words.collect();
        let about = setting.about().replace('-', "\\-");
        text += &format!(".It {}\n{about}.{own}\n", words.join(" "));
    }
    text + ".It Fl -version , Fl -help\n"
}
