// Package access tells who sends a request to the node and what the sender may
// do, by asking the API server and remembering its answers for a while.
//
// It owns those remembered answers, and nothing else: certificates are checked
// against the authorities of the moment, tokens and rights by the API server.
// What is remembered is bounded in number and in time. Answers of yes and of no
// are kept apart, so that a flood of bad tokens cannot push out the good ones.
package access
