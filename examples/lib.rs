//! Programs that use Undertone as a library; `cargo run --release -p undertone-examples --example simulate` runs one.
