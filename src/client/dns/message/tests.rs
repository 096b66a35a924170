use proptest::prelude::*;

use super::*;

const ID: u16 = 0xbeef;
/// A pointer to the name in the question.
const ASKED: &[u8] = &[0xc0, 12];

fn question(kind: RecordType) -> Question {
    Question { id: ID, name: Name::new("pi-3.lan").unwrap(), kind }
}

fn wire(name: &str) -> Vec<u8> {
    Name::new(name).unwrap().0
}

/// A record with its owner, type and data; class IN, TTL 300.
fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = owner.to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 1, 44]);
    bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

fn reply(kind: RecordType, flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let mut packet = query(&question(kind), false);
    packet[2..4].copy_from_slice(&flags.to_be_bytes());
    packet[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    packet.extend(records.concat());
    packet
}

fn addresses(list: &[&str], seconds: u64) -> Option<Reply> {
    let list = list.iter().map(|ip| ip.parse().unwrap()).collect();
    Some(Reply::Addresses(list, Duration::from_secs(seconds)))
}

/// What `packet` answers to the question for an A record.
fn answer(packet: &[u8]) -> Option<Reply> {
    parse(packet, &question(RecordType::A))
}

const MALFORMED: Option<Reply> = Some(Reply::Failed("a malformed answer"));
const OK: u16 = 0x8180;
const TC: u16 = 0x8380;

#[test]
fn a_question_byte_by_byte() {
    let packet = query(&question(RecordType::A), false);
    let want =
        b"\xbe\xef\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04pi-3\x03lan\x00\x00\x01\x00\x01";
    assert_eq!(packet, want);
    assert!(query(&question(RecordType::Aaaa), false).ends_with(b"\x03lan\x00\x00\x1c\x00\x01"));
    let large = query(&question(RecordType::A), true);
    assert_eq!(large[..11], packet[..11]);
    assert_eq!(large[11], 1, "one additional record");
    assert_eq!(large[12..packet.len()], packet[12..]);
    assert_eq!(large[packet.len()..], *b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00");
}

#[test]
fn what_a_name_may_be() {
    let label = "a".repeat(63);
    let three = format!("{label}.{label}.{label}");
    for (text, want) in [
        ("pi", true),
        ("PI.", true),
        ("_x.y-z", true),
        ("", false),
        (".", false),
        ("a..b", false),
        (".a", false),
        ("a..", false),
        (&label, true),
        (&format!("{label}a"), false),
        (&format!("{three}.{}", &label[..61]), true),
        (&format!("{three}.{}", &label[..62]), false),
    ] {
        assert_eq!(Name::new(text).is_some(), want, "{text}");
    }
    assert_eq!(Name::new("Pi.LAN"), Name::new("pi.lan."));
}

/// Byte by byte, without the helpers; the alias's target is compressed.
#[test]
fn an_answer_byte_by_byte() {
    let packet = b"\x1a\x2b\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01\
        \xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x07\x04edge\xc0\x10\
        \xc0\x2d\x00\x01\x00\x01\x00\x00\x00\x14\x00\x04\x5d\xb8\xd8\x22";
    let question =
        Question { id: 0x1a2b, name: Name::new("www.example.com").unwrap(), kind: RecordType::A };
    assert_eq!(parse(packet, &question), addresses(&["93.184.216.34"], 20));
}

#[test]
fn what_an_answer_says() {
    let a = |owner: &[u8], last| record(owner, 1, &[192, 0, 2, last]);
    let alias = |owner: &[u8], target: &str| record(owner, 5, &wire(target));
    let short = |mut record: Vec<u8>, ttl: u8| {
        record[ASKED.len() + 7] = ttl;
        record[ASKED.len() + 6] = 0;
        record
    };
    let chaos = {
        let mut record = a(ASKED, 1);
        record[5] = 3;
        record
    };
    let many: Vec<Vec<u8>> = (0..70).map(|last| a(ASKED, last)).collect();
    let first: Vec<String> = (0..64).map(|last| format!("192.0.2.{last}")).collect();
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let chain = |length: usize| {
        let mut records: Vec<Vec<u8>> =
            (0..length).map(|i| alias(&wire(&format!("n{i}")), &format!("n{}", i + 1))).collect();
        records.push(alias(ASKED, "n0"));
        records.push(a(&wire(&format!("n{length}")), 9));
        records
    };
    let endless = Some(Reply::Failed("an endless chain of aliases"));
    for (case, records, want) in [
        ("none", vec![], Some(Reply::NoAddress)),
        ("one", vec![a(ASKED, 1)], addresses(&["192.0.2.1"], 300)),
        (
            "in the order of the answer, once each",
            vec![a(ASKED, 2), a(ASKED, 1), a(ASKED, 2)],
            addresses(&["192.0.2.2", "192.0.2.1"], 300),
        ),
        ("many", many, addresses(&first, 300)),
        (
            "the shortest TTL",
            vec![a(ASKED, 1), short(a(ASKED, 2), 7), a(ASKED, 3)],
            addresses(&["192.0.2.1", "192.0.2.2", "192.0.2.3"], 7),
        ),
        ("another case", vec![a(b"\x04PI-3\x03LaN\x00", 1)], addresses(&["192.0.2.1"], 300)),
        ("another owner", vec![a(&wire("pi-4.lan"), 1)], Some(Reply::NoAddress)),
        ("another class", vec![chaos], Some(Reply::NoAddress)),
        (
            "another type",
            vec![record(ASKED, 28, &[0; 16]), record(ASKED, 16, b"\x01x")],
            Some(Reply::NoAddress),
        ),
        (
            "an alias",
            vec![short(alias(ASKED, "x.y"), 30), a(&wire("x.y"), 1)],
            addresses(&["192.0.2.1"], 30),
        ),
        (
            "aliases backwards",
            vec![a(&wire("z"), 1), alias(&wire("y"), "z"), a(&wire("other"), 2), alias(ASKED, "y")],
            addresses(&["192.0.2.1"], 300),
        ),
        ("an alias of nothing", vec![alias(ASKED, "x")], Some(Reply::NoAddress)),
        ("a long chain", chain(14), addresses(&["192.0.2.9"], 300)),
        ("too long a chain", chain(15), endless.clone()),
        ("an alias of itself", vec![record(ASKED, 5, ASKED)], endless.clone()),
        (
            "two aliases of each other",
            vec![alias(ASKED, "x"), alias(&wire("x"), "pi-3.lan")],
            endless,
        ),
        ("an address of 3 bytes", vec![record(ASKED, 1, &[1, 2, 3])], MALFORMED),
        ("an address of 5 bytes", vec![record(ASKED, 1, &[1, 2, 3, 4, 5])], MALFORMED),
        ("an address of 0 bytes", vec![record(ASKED, 1, &[])], MALFORMED),
        ("an alias with something behind it", vec![record(ASKED, 5, b"\x01x\x00\x00")], MALFORMED),
        (
            "an alias that reaches out of its data",
            vec![record(ASKED, 5, b"\x05x"), a(ASKED, 1)],
            MALFORMED,
        ),
    ] {
        assert_eq!(answer(&reply(RecordType::A, OK, &records)), want, "{case}");
    }
    let v6 = record(ASKED, 28, &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(
        parse(&reply(RecordType::Aaaa, OK, &[v6]), &question(RecordType::Aaaa)),
        addresses(&["fd00::3"], 300)
    );
    // More records than the packet has room for.
    let mut packet = reply(RecordType::A, OK, &[a(ASKED, 1)]);
    packet[6..8].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(answer(&packet), MALFORMED);
}

#[test]
fn what_is_no_answer() {
    for (flags, want) in [
        (0x8181, Reply::Failed("FORMERR")),
        (0x8182, Reply::Failed("SERVFAIL")),
        (0x8183, Reply::NoName),
        (0x8184, Reply::Failed("NOTIMP")),
        (0x8185, Reply::Failed("REFUSED")),
        (0x8189, Reply::Failed("an unknown error")),
        (TC, Reply::Truncated),
        // No authority and no recursion; with one of them the answer counts.
        (0x8100, Reply::Failed("a referral to other servers")),
        (0x8500, Reply::NoAddress),
        (0x8180, Reply::NoAddress),
    ] {
        assert_eq!(answer(&reply(RecordType::A, flags, &[])), Some(want), "{flags:x}");
    }
    // An alias is an answer.
    let alias = reply(RecordType::A, 0x8100, &[record(ASKED, 5, &wire("x"))]);
    assert_eq!(answer(&alias), Some(Reply::NoAddress));
    let good = reply(RecordType::A, OK, &[record(ASKED, 1, &[192, 0, 2, 1])]);
    for (case, at, byte) in [
        ("id", 0, 0xbf),
        ("id", 1, 0xee),
        ("a question", 2, 0x01),
        ("opcode", 2, 0x89),
        ("no question", 5, 0),
        ("two questions", 5, 2),
        ("256 questions more", 4, 1),
        ("name", 13, b'q'),
        ("name", 18, b'm'),
        ("type", 23, 28),
        ("class", 25, 3),
    ] {
        let mut packet = good.clone();
        assert_ne!(packet[at], byte, "{case}");
        packet[at] = byte;
        assert_eq!(answer(&packet), None, "{case}");
    }
}

#[test]
fn pointers_only_lead_back() {
    // The answer begins at 26; its data, behind an owner of two bytes, at 38.
    for (case, owner, data) in [
        ("to itself", &[0xc0, 26][..], &[][..]),
        ("forward", &[0xc0, 27], &[]),
        ("beyond the end", &[0xff, 0xff], &[]),
        ("into the other half of itself", &[1, b'x', 0xc0, 28], &[]),
        ("back to its own begin", &[1, b'x', 0xc0, 26], &[]),
        ("reserved bits", &[0x40, 12], &[]),
        ("reserved bits", &[0x80, 12], &[]),
        ("in data, to itself", ASKED, &[0xc0, 38]),
        ("in data, forward", ASKED, &[0xc0, 39, 0]),
        ("in data, to its own begin", ASKED, &[1, b'x', 0xc0, 38]),
    ] {
        let packet = reply(RecordType::A, OK, &[record(owner, 5, data)]);
        assert_eq!(answer(&packet), MALFORMED, "{case}");
    }
    // In the question itself, where it is nobody's answer.
    let mut packet = reply(RecordType::A, OK, &[]);
    packet[12..14].copy_from_slice(&[0xc0, 12]);
    assert_eq!(answer(&packet), None);
    // Two that lead to each other, and a name that grows with each round.
    let mut packet = reply(RecordType::A, OK, &[record(&[0xc0, 38], 16, &[0xc0, 26])]);
    assert_eq!(answer(&packet), MALFORMED);
    packet.truncate(26);
    let long = [63; 64].repeat(5);
    packet.extend(record(&long, 1, &[0; 4]));
    packet[7] = 1;
    assert_eq!(answer(&packet), MALFORMED);
    // A pointer to a pointer is fine.
    let alias = record(ASKED, 5, &[1, b'x', 0xc0, 17]);
    let a = record(&[0xc0, 38], 1, &[192, 0, 2, 1]);
    let b = record(&[0xc0, 26], 1, &[192, 0, 2, 2]);
    assert_eq!(
        answer(&reply(RecordType::A, OK, &[alias, a, b.clone()])),
        addresses(&["192.0.2.2"], 300)
    );
    let alias = record(&wire("other"), 5, &[1, b'x', 0xc0, 17]);
    assert_eq!(answer(&reply(RecordType::A, OK, &[alias, b])), Some(Reply::NoAddress));
}

#[test]
fn cut_off_at_each_length() {
    let records = [
        record(ASKED, 5, &wire("x.y")),
        record(&wire("x.y"), 1, &[192, 0, 2, 1]),
        record(&wire("x.y"), 1, &[192, 0, 2, 2]),
    ];
    let whole = reply(RecordType::A, OK, &records);
    let one = whole.len() - records[2].len();
    for length in 0..whole.len() {
        let want = if length < 26 { None } else { MALFORMED };
        let packet = &whole[..length];
        assert_eq!(answer(packet), want, "{length}");
    }
    // A server that says that it cut the answer off may do so anywhere.
    let whole = reply(RecordType::A, TC, &records);
    for length in 26..=whole.len() {
        let want = match length {
            _ if length == whole.len() => addresses(&["192.0.2.1", "192.0.2.2"], 300),
            _ if length >= one => addresses(&["192.0.2.1"], 300),
            _ => Some(Reply::Truncated),
        };
        let packet = &whole[..length];
        assert_eq!(answer(packet), want, "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_break_it(tail in prop::collection::vec(any::<u8>(), 0..200), count: u16) {
        let mut packet = reply(RecordType::A, OK, &[]);
        packet[6..8].copy_from_slice(&count.to_be_bytes());
        packet.extend(&tail);
        prop_assert!(answer(&packet).is_some());
        answer(&tail);
    }

    #[test]
    fn no_changed_byte_breaks_it(at in 0usize..200, byte: u8) {
        let mut packet = reply(RecordType::A, OK, &[
            record(ASKED, 5, &wire("x.y")),
            record(&[0xc0, 38], 1, &[192, 0, 2, 1]),
        ]);
        let at = at % packet.len();
        packet[at] = byte;
        if let Some(Reply::Addresses(list, _)) = answer(&packet) {
            prop_assert_eq!(list.len(), 1);
        }
    }
}
