package explain

// Socket is the name of the socket below the root directory on which the agent serves
// explanations to root.
const Socket = "explain.sock"
