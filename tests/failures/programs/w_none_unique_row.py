# reason: unknown
import sqlite3

db = sqlite3.connect(":memory:")
db.execute("create table runs (name text unique)")
db.execute("insert into runs values ('a')")
db.execute("insert into runs values ('a')")
