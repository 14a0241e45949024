// Package explain says why a pod is, or is not, running, to people.
//
// It holds the vocabulary of the answer ([Pod]), the judgement that turns what is
// known into one sentence ([Judge]), and its two pictures: text for a terminal
// ([Text]) and a page that stands alone ([Page]). All of it is pure. The facts are
// gathered by whoever looks after the pod, when somebody asks and not before.
package explain
