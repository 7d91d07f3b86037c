//! `understudy`: all of it is in the library, from which the manual is made, too.

fn main() -> std::process::ExitCode {
    understudy::program::main()
}
