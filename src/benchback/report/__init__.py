"""The report of a store: charts, tables, prose and page. Imports no framework and measures nothing."""
