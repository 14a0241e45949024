package explain

// Socket is the name of the socket below the root directory on which the agent
// answers the administrator of the machine.
const Socket = "explain.sock"
