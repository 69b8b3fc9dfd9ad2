package arch

import "slices"

// checkTable holds the import table to the tree: a row that is looser than the house
// allows the next wrong arrow without a word.
func (r Rules) checkTable(files []file, report func(where, format string, args ...any)) {
	type arrow struct{ from, to string }
	exists := map[string]bool{}
	source, tests := map[arrow]bool{}, map[arrow]bool{}
	for _, f := range files {
		exists[f.dir] = true
		used := source
		if f.test {
			used = tests
		}
		for _, imp := range f.imports {
			if to, ours := r.ours(imp); ours {
				used[arrow{f.dir, to}] = true
			}
		}
	}
	planned := func(p string) bool { return slices.Contains(r.Planned, p) }
	for _, p := range r.Planned {
		if exists[p] {
			report(p, "on the list of planned packages, but it exists")
		}
		if _, ok := r.Imports[p]; !ok {
			report(p, "on the list of planned packages, but not in the import table")
		}
	}
	unused := func(rows map[string][]string, used map[arrow]bool, what string) {
		for from, row := range rows {
			if planned(from) {
				continue
			}
			if !exists[from] {
				report(from, "in the import table, but there is no such package; if it will come, list it as planned")
				continue
			}
			for _, to := range row {
				if !used[arrow{from, to}] && !planned(to) {
					report(from, "may import %s, but %s: take it out of the table", to, what)
				}
			}
		}
	}
	unused(r.Imports, source, "no file outside tests does")
	unused(r.TestImports, tests, "no test does")
	for from, row := range r.TestImports {
		for _, to := range row {
			if slices.Contains(r.Imports[from], to) {
				report(from, "its tests may import %s, but all its files may: take it out of TestImports", to)
			}
		}
	}
}
