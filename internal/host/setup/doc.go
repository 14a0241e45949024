// Package setup prepares the machine and the process before the agent starts: its directories and the mount that
// containers share, the sysctls that pods rely on, the limits and the OOM score of the process, the lock file.
//
// It owns the directories below the root directory that other programs know by name ([Directories]), and the list of
// sysctls ([Untuned]). [Process] is its one long-lived part: it repeats settings that other programs may have
// changed.
package setup
