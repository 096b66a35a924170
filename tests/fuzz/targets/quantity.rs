//! Quantities: the canonical text means the same, and arithmetic never panics.
#![no_main]

use nodelet::kube::quantity::Quantity;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (one, other) = text.split_once(' ').unwrap_or((text, "1"));
    let Ok(one) = one.parse::<Quantity>() else {
        return;
    };
    assert_eq!(one.to_string().parse(), Ok(one));
    if let Ok(other) = other.parse::<Quantity>() {
        let _ = (one.plus(other).to_string(), one.minus(other).to_string());
        assert_eq!(one < other, other > one);
    }
});
