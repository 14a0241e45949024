package pod

// Waiting is why a container waits, as its status shows it: one of the waiting reasons,
// and a message.
type Waiting struct {
	Reason  string
	Message string
}
