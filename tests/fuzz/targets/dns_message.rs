//! What a name server, or whoever pretends to be one, may send.
#![no_main]

use nodelet::client::dns::message::{RecordType, Name, Question, parse, query};

libfuzzer_sys::fuzz_target!(|packet: &[u8]| {
    let Some(name) = Name::new("board.lab") else {
        return;
    };
    for kind in [RecordType::A, RecordType::Aaaa] {
        let question = Question {
            id: packet.first().map_or(0, |id| u16::from(*id)),
            name: name.clone(),
            kind,
        };
        let _ = parse(packet, &question);
        // With a head that fits, so that what follows it is looked at, too.
        let mut answer = query(&question, false);
        if let Some(flags) = answer.get_mut(2) {
            *flags |= 0x80;
        }
        if let Some(count) = answer.get_mut(7) {
            *count = 3;
        }
        answer.extend_from_slice(packet);
        let _ = parse(&answer, &question);
    }
});
