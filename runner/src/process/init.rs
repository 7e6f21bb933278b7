//! The init process of a container.
//!
//! In a container the program is often PID 1. The kernel makes PID 1 the parent of processes whose own parent has ended,
//! and they stay as zombies until PID 1 reads their exit status. As PID 1 the runner therefore starts its own program a
//! second time, which does the work. The first one passes signals on, reads the exit status of every process, and exits
//! with the code of the second. What a signal means is not known here.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};

/// The signals that are passed on.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTERM,
];

const INIT: Pid = Pid::from_raw(1);

/// As PID 1: runs the program in a second process, and returns its exit code. Otherwise `None`, at once.
pub fn run() -> Option<ExitCode> {
    let signals = handled();
    if getpid() != INIT {
        if getppid() == INIT {
            // They are blocked until now, so that none was lost.
            let _unchanged = signals.thread_unblock().is_err();
        }
        return None;
    }
    let started = start(&signals);
    if started.is_err() {
        // Zombies are better than no run: this process does the work.
        let _unchanged = signals.thread_unblock().is_err();
    }
    let (signals, child) = started.ok()?;
    Some(ExitCode::from(supervise(&signals, child)))
}

fn handled() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

fn start(handled: &SigSet) -> io::Result<(SignalFd, Pid)> {
    handled.thread_block()?;
    let signals = SignalFd::with_flags(handled, SfdFlags::SFD_CLOEXEC)?;
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| OsString::from("runner"));
    // By its path, so that a list of processes shows its name.
    let child = Command::new(std::env::current_exe()?).arg0(name).args(args).spawn()?;
    let child = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok((signals, Pid::from_raw(child)))
}

/// Passes signals on and reads exit statuses, until the child has ended. Returns its exit code.
fn supervise(signals: &SignalFd, child: Pid) -> u8 {
    loop {
        match signals.read_signal() {
            Ok(Some(info)) if info.ssi_signo == Signal::SIGCHLD as u32 => {
                if let Some(code) = reap(child) {
                    return code;
                }
            }
            // A positive code is the kernel's: a signal of the terminal, which the child has got, too.
            Ok(Some(info)) if info.ssi_code <= 0 => {
                let signal = i32::try_from(info.ssi_signo).ok();
                let signal = signal.and_then(|signal| Signal::try_from(signal).ok());
                // A child that has ended needs no signal.
                let _ended = kill(child, signal).is_err();
            }
            Ok(_) | Err(Errno::EINTR) => {}
            // Without signals, the end of the child can still be awaited.
            Err(_) => return waitpid(child, None).ok().and_then(exit_code).unwrap_or(1),
        }
    }
}

/// Reads the exit status of every process that has ended. Returns the child's exit code if it is one of them.
fn reap(child: Pid) -> Option<u8> {
    let mut code = None;
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
        if status.pid() == Some(child) {
            code = exit_code(status);
        }
    }
    code
}

/// The exit code; for a process that a signal ended, 128 and the signal's number, as in a shell.
fn exit_code(status: WaitStatus) -> Option<u8> {
    match status {
        WaitStatus::Exited(_, code) => u8::try_from(code).ok(),
        WaitStatus::Signaled(_, signal, _) => u8::try_from(128 + signal as i32).ok(),
        _ => None,
    }
}
