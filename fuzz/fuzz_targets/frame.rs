//! Any bytes as a frame: refused or within the limits, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone_core::message::{Message, decode};
use undertone_core::study::Limits;

fuzz_target!(|frame: &[u8]| {
    let limits = Limits { features: 4, rounds: 80, clients: 3, largest: 1e30 };
    match decode(frame, &limits) {
        Ok(Message::Round(release)) => {
            assert!((1..=80).contains(&release.round) && release.payload.values().all(f64::is_finite));
        }
        Ok(Message::Final(last)) => assert!(last.author < 3 && last.payload.values().all(f64::is_finite)),
        Ok(Message::Hello(hello)) => assert_eq!(hello.encode().bytes(), frame),
        Ok(Message::Head { author, head }) => assert_eq!(head.frame(author).bytes(), frame),
        Ok(Message::Vote(vote)) => assert_eq!(vote.encode().bytes(), frame),
        Ok(Message::Done { .. } | Message::Stuck) | Err(_) => {}
    }
});
