# DBI, and dbplyr on it: lists, queries with parameters, pipelines that become SQL, refusals.
suppressPackageStartupMessages({ library(DBI); library(dplyr) })
arguments <- commandArgs(trailingOnly = TRUE)
con <- dbConnect(RPostgreSQL::PostgreSQL(), host = arguments[1], port = as.integer(arguments[2]),
                 dbname = "cps1988", user = "alice", password = arguments[3])
said <- function(name, ...) cat(name, paste(..., collapse = " "), "\n")
refused <- function(name, what) {
  said(name, tryCatch({ print(what()); "answered" }, error = function(e) {
    gsub("\n", " ", paste(conditionMessage(e), conditionMessage(if (is.null(e$parent)) e else e$parent)))
  }))
}
said("tables", dbListTables(con))
said("fields", dbListFields(con, "cps1988"))
regions <- "SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region ORDER BY region WITH UTILITY (500, 0.05)"
rows <- dbGetQuery(con, regions)
said("rows", rows$region)
text <- "SELECT COUNT(*) AS n FROM cps1988 WHERE education >= $1 AND region = $2 WITH UTILITY (900, 0.05)"
said("same", dbGetQuery(con, text, list(12L, "west"))$n == dbGetQuery(con, text, list(12L, "west"))$n)
refused("rows_refused", function() dbSendQuery(con, "SELECT * FROM cps1988"))
invisible(dbExecute(con, "SET privacy.utility = '500, 0.05'"))
survey <- suppressWarnings(tbl(con, "cps1988"))
one <- survey %>% filter(region == "west") %>% count() %>% collect()
said("counted", one$n == rows$n[rows$region == "west"])
two <- survey %>% group_by(region) %>% summarise(n = n()) %>% arrange(region) %>% collect()
said("grouped", identical(as.numeric(two$n), as.numeric(rows$n)))
refused("preview_refused", function() survey %>% head(3) %>% collect())
invisible(dbDisconnect(con))
