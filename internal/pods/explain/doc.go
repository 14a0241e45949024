// Package explain explains to people why a pod runs or does not run.
//
// It has the types of an explanation ([Pod]), the function that sums it up in one sentence
// ([Judge]), and two renderings: text for a terminal ([Text]) and a self-contained HTML
// page ([Page]). All of it is pure. The worker of the pod collects the facts on request
// only.
package explain
