// Package selinux asks the machine's SELinux how files have to be labelled so that
// a container can use them. The answer is that of the library which runtimes ask as
// well, so that a label given here is the one that the container runs with.
package selinux
