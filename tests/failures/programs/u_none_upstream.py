# reason: unknown
raise Exception("upstream workflow step 'ingest' reported status FAILED")
