// Command kubelet is the node agent. It reads flags and configuration, runs the
// agent until a signal, and turns its end into an exit status: 0 after a signal
// or an answered question such as --help, 1 after anything else.
package main
