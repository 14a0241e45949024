// Command kubelet is the node agent. It reads flags and configuration, and runs the agent
// until a signal. The exit status is 0 after a signal or a flag such as --help, else 1.
package main
