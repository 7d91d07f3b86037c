//! `understudy-hook`: all of it is in the library, where its parsers can be fuzzed.

fn main() -> std::process::ExitCode {
    understudy_hook::main()
}
