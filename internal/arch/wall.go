package arch

import (
	"go/ast"
	"slices"
	"strings"
)

func (r Rules) checkWall(f file, report func(where, format string, args ...any)) {
	if f.test {
		return
	}
	reason, listed := r.Wall[f.path]
	switch {
	case !listed:
		for _, what := range f.wall {
			report(f.path, "%s is about the wall clock, which jumps: measure with a time.Time as time.Now returns it, or list the file with the reason", what)
		}
	case len(f.wall) == 0:
		report(f.path, "on the list of wall clock readers, but it is none")
	case strings.TrimSpace(reason) == "":
		report(f.path, "on the list of wall clock readers without a reason")
	}
}

// wallClock returns, sorted, what a file does with times that have no monotonic part:
// it makes them of numbers or strips that part, makes numbers of them, reads those of
// files. It goes by names alone, and is meant to start an argument, not to be proof
// against one who avoids it.
func wallClock(syntax *ast.File) (found []string) {
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			switch name := sel.Sel.Name; {
			case name == "Unix" && len(n.Args) == 0: // a field may have this name, too
				found = append(found, "Unix()")
			case name == "Round" && len(n.Args) == 1:
				if zero, ok := n.Args[0].(*ast.BasicLit); ok && zero.Value == "0" {
					found = append(found, "Round(0)")
				}
			}
		case *ast.SelectorExpr:
			name := n.Sel.Name
			pkg, _ := n.X.(*ast.Ident)
			switch ofTime := pkg != nil && pkg.Name == "time"; {
			case ofTime && strings.HasPrefix(name, "Unix"):
				found = append(found, "time."+name)
			case slices.Contains([]string{"UnixMilli", "UnixMicro", "UnixNano", "ModTime", "Mtim", "Ctim"}, name):
				found = append(found, name)
			}
		}
		return true
	})
	slices.Sort(found)
	return slices.Compact(found)
}
