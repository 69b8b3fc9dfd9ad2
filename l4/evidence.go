package l4

// Evidence is what one flow says about its backend. What a stranger can bring about
// is worth less than what only a backend can do: docs/decisions/0005 has the whole list.
type Evidence uint8

// What a flow says.
const (
	Answered Evidence = iota // the backend has answered, or taken all there was to take
	Failed                   // it failed, and would with any other client too
	Doubtful                 // it failed, and the client may have brought that about
)
